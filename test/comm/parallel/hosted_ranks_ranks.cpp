// Tests several mesh ranks in one process: their exchanges, for any number of processes, and their
// errors.
#include "shale/comm/parallel/hosted_ranks.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/comm/parallel/context/cut_case.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/mesh_line.h"

namespace shale::test {
namespace {

using comm::HostedExchange;
using comm::HostedRanks;
using comm::ShiftOf;

// A line of `mesh` ranks, distributed evenly over the processes of a group.
struct Hosted {
  Hosted(comm::ProcessGroup& group, int mesh, bool overlap = true)
      : context(small_context(1)),
        ranks(context, mesh / group.size()),
        line(line_over(group, "tensor", &ranks, overlap)) {}

  Context context;
  HostedRanks ranks;
  std::shared_ptr<comm::MeshLine> line;
};

template <typename T>
Tensor filled(Context& context, const Shape& shape, const std::function<T(int64_t)>& value) {
  std::vector<T> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(value(i));
  return from_host<T>(context, values, shape);
}

template <typename T>
void check_values(const Tensor& x, const Shape& shape, const std::function<T(int64_t)>& expected) {
  CHECK(x.shape() == shape);
  const std::vector<T> got = to_host<T>(x);
  CHECK(first_difference(got.data(), std::ssize(got), expected) == -1);
}

// Exchanges rows on one of `n` mesh ranks, and compares the results with loops over all ranks.
template <typename T>
struct Calls {
  static constexpr int64_t B = 2, T_ = 3, C = 5, count = B * T_ * C;

  Context& context;
  HostedExchange& exchange;
  int n = exchange.ranks();
  int rank = exchange.rank();

  Tensor own(const Shape& shape) const {
    return filled<T>(context, shape, [this](int64_t i) { return order_value<T>(rank, i); });
  }
  void check_gathered(const Tensor& all) const {
    check_values<T>(all, {B, n * T_, C},
                    [](int64_t i) { return order_value<T>(int(i / count), i % count); });
  }
  void check_summed(const Tensor& slice) const {
    check_values<T>(slice, {B, T_, C},
                    [this](int64_t i) { return expected_sum<T>(n, 0, rank * count + i); });
  }
  void check_leaves(const Tensor& all) const {
    check_values<T>(all, {n, C}, [](int64_t i) { return order_value<T>(int(i / C), i % C); });
  }
  void check_from(const Tensor& x, int from) const {
    check_values<T>(x, {count}, [from](int64_t i) { return order_value<T>(from, i); });
  }
  Tensor own_leaf() const {
    return filled<T>(context, {n, C}, [this](int64_t i) {
      return i / C == rank ? order_value<T>(rank, i % C) : T(77.f);
    });
  }

  void at_once() const {
    check_gathered(exchange.gather(own({B, T_, C})));
    check_summed(exchange.sum_slices(own({B, n * T_, C})));
    const Tensor leaves = own_leaf();
    exchange.gather_parts(leaves);
    check_leaves(leaves);
    const Tensor counts =
        filled<int32_t>(context, {7}, [this](int64_t i) { return int32_t(100 * rank + i); });
    exchange.add_counts(counts);
    check_values<int32_t>(counts, {7},
                          [this](int64_t i) { return int32_t(100 * n * (n - 1) / 2 + n * i); });
    const Tensor given = exchange.all_to_all(
        filled<T>(context, {n, C}, [this](int64_t i) { return order_value<T>(rank, i); }));
    check_values<T>(given, {n, C},
                    [this](int64_t i) { return order_value<T>(int(i / C), rank * C + i % C); });
  }
  // Starts all exchanges, then waits for each.
  void begun() const {
    comm::Arrival rows = exchange.begin_gather(own({B, T_, C}));
    comm::Arrival sum = exchange.begin_sum_slices(own({B, n * T_, C}));
    comm::Arrival leaves = exchange.begin_gather_parts(own_leaf());
    comm::Arrival passed = exchange.begin_pass(own({count}));
    std::vector<comm::Arrival> shifted;
    for (const ShiftOf of : {ShiftOf::kRing, ShiftOf::kRows, ShiftOf::kSums}) {
      for (int by = 1; by < n; ++by) {
        const Tensor x = own({count});
        shifted.push_back(exchange.begin_shift(x, empty_like(x), by, of));
      }
    }
    check_gathered(rows.get());
    check_summed(sum.get());
    check_leaves(leaves.get());
    check_from(passed.get(), (rank + n - 1) % n);
    for (size_t i = 0; i < shifted.size(); ++i) {
      const int by = int(i) % (n - 1) + 1;
      check_from(shifted[i].get(), (rank + n - by) % n);
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("mesh ranks exchange the same bits, however many a process has", "[hosted]",
                   float, bf16) {
  const auto group = world().group();
  for (comm::ProcessGroup* const over : {group.get(), &alone()}) {
    for (const int here : {1, 2, 4}) {
      for (const bool overlap : {false, true}) {
        CAPTURE(over->size(), here, overlap);
        Hosted hosted(*over, here * over->size(), overlap);
        hosted.ranks.run([&](int member) {
          HostedExchange exchange(hosted.line, member);
          CHECK(exchange.rank() == over->rank() * here + member);
          const Calls<TestType> calls{hosted.context, exchange};
          calls.at_once();
          calls.begun();
        });
      }
    }
  }
}

TEST_CASE("slices of whole samples are exchanged along their first dimension", "[hosted]") {
  const auto group = world().group();
  const int n = 2 * group->size();
  Hosted hosted(*group, n);
  hosted.ranks.run([&](int member) {
    HostedExchange exchange(hosted.line, member);
    exchange.set_whole_samples();
    const Tensor x = full(hosted.context, {2, 3, 4}, DType::kF32, float(exchange.rank()));
    const Tensor all = exchange.gather(x);
    check_values<float>(all, {2 * n, 3, 4}, [](int64_t i) { return float(i / 24); });
    check_values<float>(exchange.sum_slices(all), {2, 3, 4},
                        [&](int64_t) { return float(n * exchange.rank()); });
  });
}

namespace {

// A model with two layers that mesh ranks share; one of the layers may fail.
struct Net : Module {
  explicit Net(int64_t hidden = 24)
      : up(this, "up", 8, hidden, Init::normal(0.2f)),
        down(this, "down", hidden, 8, Init::normal(0.2f), nn::Bias::kNo) {
    up.split_outputs();
    down.split_inputs();
  }
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      if (++calls == fails_at) throw DataError("tokens.bin: magic is 7");
      return distribution().across(in, in, [this](const Tensor& rows, const Tensor& residual) {
        return down.forward(up.forward(rows), residual);
      });
    });
  }

  nn::Linear up, down;
  int calls = 0, fails_at = 0;
};

// Two mesh ranks in each process. Collectives do not overlap with computation: after an error, a
// pending collective and its group could not be used any more (comm/work.h).
struct Nets {
  explicit Nets(comm::ProcessGroup& group)
      : context(small_context(1)),
        parallel(group, context, {.tensor = 2 * group.size(), .tensor_here = 2},
                 {.overlap = false}),
        nets(parallel.build<Net>({}, [] { return std::make_unique<Net>(24 * 8); })),
        data(*nets.front(), {}, context, parallel.groups(), {}) {}

  // Returns the gradients of the inputs.
  std::vector<std::vector<float>> step() {
    std::vector<std::vector<float>> grads(2);
    parallel.hosted().run([&](int rank) {
      const Tensor x = leaf(context, {2, 1, 8}, randn<float>(16, uint64_t(rank)));
      backward(sum(nets[size_t(rank)]->forward(x)));
      grads[size_t(rank)] = to_host<float>(x.grad());
    });
    return grads;
  }

  Context context;
  comm::Parallel parallel;
  std::vector<std::unique_ptr<Net>> nets;
  comm::DataParallel data;
};

}  // namespace

TEST_CASE("the error of one mesh rank ends the others, which can go on after it", "[hosted]") {
  const auto group = world().group();
  for (const int failing : {0, 1}) {
    for (const std::string where : {"forward", "backward", "recomputed segment"}) {
      CAPTURE(failing, where);
      Nets all(*group);
      for (const auto& net : all.nets) net->set_recompute(Recompute::kFull);
      const std::vector<std::vector<float>> want = all.step();
      Net& net = *all.nets[size_t(failing)];
      net.calls = 0;
      if (where == "forward") net.fails_at = 1;
      if (where == "recomputed segment") net.fails_at = 2;
      const uint64_t hook = net.add_hook(HookPoint::kBeforeBackward, [&] {
        if (where == "backward") throw DataError("tokens.bin: magic is 7");
      });
      CHECK(message_of<DataError>([&] { all.step(); }) == "tokens.bin: magic is 7");
      CHECK(all.parallel.hosted().current() == -1);
      net.fails_at = 0;
      net.remove_hook(HookPoint::kBeforeBackward, hook);
      CHECK(all.step() == want);
    }
  }
}

namespace {

// Runs `call` on two mesh ranks, returns their error, and checks that the ranks can continue.
std::string mismatch(const std::function<void(HostedExchange&, const Tensor& x)>& call) {
  Hosted hosted(alone(), 2);
  const Tensor x = full(hosted.context, {1, 4, 3}, DType::kF32, 1);
  const std::string message = message_of<CommError>([&] {
    hosted.ranks.run([&](int member) {
      HostedExchange exchange(hosted.line, member);
      call(exchange, x);
    });
  });
  hosted.ranks.run([&](int member) {
    CHECK(HostedExchange(hosted.line, member).gather(x).shape() == Shape{1, 8, 3});
  });
  return message;
}

}  // namespace

TEST_CASE("mesh ranks of a process that call different collectives are named with both calls",
          "[hosted]") {
  const std::string kinds = mismatch([](HostedExchange& exchange, const Tensor& x) {
    exchange.rank() == 0 ? exchange.gather(x) : exchange.sum_slices(x);
  });
  CHECK(contains(kinds, "process called tensor sum, but rank 0 called tensor gather"));
  const std::string shifts = mismatch([](HostedExchange& exchange, const Tensor& x) {
    if (exchange.rank() == 0) {
      exchange.gather(x);
    } else {
      exchange.begin_shift(x, empty_like(x), 1, ShiftOf::kRows).get();
    }
  });
  CHECK(contains(shifts, "called tensor gather by 1, but rank 0 called tensor gather;"));
  const std::string shapes = mismatch([](HostedExchange& exchange, const Tensor& x) {
    exchange.gather(exchange.rank() == 0 ? x : full(x.context(), {1, 2, 3}, DType::kF32, 1));
  });
  CHECK(contains(shapes, "tensor gather: rank 0 has [1,4,3] of fp32, and rank 1 has [1,2,3]"));
  const std::string dtypes = mismatch([](HostedExchange& exchange, const Tensor& x) {
    exchange.sum_slices(exchange.rank() == 0 ? x : full(x.context(), {1, 4, 3}, DType::kBF16, 1));
  });
  CHECK(contains(dtypes, "and rank 1 has [1,4,3] of bf16"));
}

TEST_CASE("a mesh rank that ends while another waits is an error", "[hosted]") {
  const std::string ended = mismatch([](HostedExchange& exchange, const Tensor& x) {
    if (exchange.rank() == 1) exchange.gather(x);
  });
  CHECK(contains(ended, "rank 0 has ended, rank 1 waits in tensor gather"));
  const std::string once_more = mismatch([](HostedExchange& exchange, const Tensor& x) {
    exchange.gather(x);
    if (exchange.rank() == 0) exchange.begin_pass(x).get();
  });
  CHECK(contains(once_more, "rank 0 waits in tensor ring by 1, rank 1 has ended"));
}

TEST_CASE("mesh ranks of a process that have different models are refused", "[hosted]") {
  const auto group = world().group();
  Context context(small_context(1));
  comm::Parallel parallel(*group, context, {.tensor = 2 * group->size(), .tensor_here = 2});
  int made = 0;
  CHECK(contains(message_of<ConfigError>([&] {
                   parallel.build<Net>({}, [&] { return std::make_unique<Net>(48 * ++made); });
                 }),
                 "the models of a process's ranks have different parameters"));
}

TEST_CASE("degrees that do not fit the processes are named", "[hosted]") {
  const auto group = world().group();
  const int ranks = group->size();
  Context context(small_context(1));
  const auto refused = [&](const comm::Degrees& degrees,
                           const comm::ParallelOptions& options = {}) {
    return message_of<ConfigError>([&] { comm::Parallel(*group, context, degrees, options); });
  };
  const std::string product = refused({.tensor = 16, .context = 3});
  CHECK(contains(product, "context 3 and tensor 16 do not fit"));
  CHECK(contains(product, cat("fit ", ranks, " processes with 1 mesh ranks each")));
  CHECK(contains(refused({.shard = 7}), "shard 7"));
  CHECK(contains(refused({.tensor = 4 * ranks, .tensor_here = 3}),
                 cat("has 3 of ", 4 * ranks, " ranks of the axis tensor, expected a divisor")));
  CHECK(contains(refused({.context = 3 * ranks, .context_here = 3}),
                 "ranks of the axis context, expected a divisor that is a power of two"));
  CHECK(contains(refused({.tensor = ranks, .tensor_here = 0}), "has 0 of"));
  CHECK(contains(refused({.tensor = 0}), "tensor 0, expected 1 or more"));
  CHECK(contains(refused({.replica = 0}), "replica 0, expected 1 or more"));
  CHECK(contains(refused({.pipeline = -1}), "pipeline -1, expected 1 or more"));
  CHECK(contains(refused({.tensor = 2 * ranks, .expert = 2, .tensor_here = 2}),
                 "expert 2 with 2 mesh ranks per process"));
  CHECK(contains(refused({.expert = 3 * ranks}),
                 cat("expert is ", 3 * ranks, ", expected a divisor of ", ranks, ", the product")));
  CHECK(contains(refused({}, {.reshard = 3 * ranks}),
                 cat("reshard is ", 3 * ranks, ", expected a divisor of the ")));
}

TEST_CASE("dropout of mesh ranks has the masks of the whole, pass after pass", "[hosted]") {
  const auto group = world().group();
  const int n = 2 * group->size();
  const int64_t B = 2, C = 4, tokens = 8 * n;
  constexpr int kPasses = 3;
  // Applies two dropouts in one forward and backward, and returns both masks.
  const auto masks = [&](Context& context, const Module& module, int64_t of) {
    const Tensor x = leaf(context, {B, of, C}, std::vector<float>(size_t(B * of * C), 1));
    const Tensor first = module.distribution().dropout(x, 0.5f, 1);
    const Tensor second = module.distribution().dropout(x, 0.5f, 2);
    backward(sum(first));
    return std::pair(to_host<float>(first), to_host<float>(second));
  };
  Context whole_context(small_context(1));
  Net whole;
  std::vector<std::pair<std::vector<float>, std::vector<float>>> want;
  for (int pass = 0; pass < kPasses; ++pass) {
    want.push_back(masks(whole_context, whole, tokens));
  }
  CHECK(want[0].first != want[0].second);
  CHECK(want[0].first != want[1].first);
  for (const std::string axis : {"tensor", "context"}) {
    Hosted hosted(*group, n);
    for (int pass = 0; pass < kPasses; ++pass) {
      hosted.ranks.run([&](int member) {
        CAPTURE(axis, pass, member);
        HostedExchange exchange(hosted.line, member);
        comm::CutSequence sequence(std::make_unique<HostedExchange>(hosted.line, member), tokens);
        const comm::MeshDistribution distribution(axis == "tensor" ? &exchange : nullptr,
                                                  axis == "context" ? &sequence : nullptr, nullptr);
        Net net;
        net.set_distribution(&distribution);
        const auto own = [&](const std::vector<float>& all) {
          if (axis == "context") return own_of(all, B, tokens, sequence);
          const auto from = all.begin() + exchange.rank() * (std::ssize(all) / n);
          return std::vector<float>(from, from + std::ssize(all) / n);
        };
        const auto got = masks(hosted.context, net, tokens / n);
        CHECK(got.first == own(want[size_t(pass)].first));
        CHECK(got.second == own(want[size_t(pass)].second));
      });
    }
  }
}

}  // namespace shale::test
