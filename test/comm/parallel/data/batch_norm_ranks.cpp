// Tests batch norm over several ranks. Synchronized statistics equal those of one rank with all
// samples. Unsynchronized running statistics are averaged over ranks.
#include "shale/comm/parallel/data/batch_norm_sync.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/conv.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

constexpr int64_t kChannels = 5;

struct Net : Module {
  Net() : norm(this, "norm", {.width = kChannels}) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return norm.forward(in, nn::Relu::kYes); });
  }
  nn::BatchNorm norm;
};

// Returns the number of rows of a rank. It differs between ranks, and rank 1 has no rows.
int64_t rows_of(int rank, int ranks) {
  return ranks > 1 && rank == 1 ? 0 : 3 + 2 * rank;
}

int64_t rows_before(int rank, int ranks) {
  int64_t rows = 0;
  for (int r = 0; r < rank; ++r) rows += rows_of(r, ranks);
  return rows;
}

Tensor part(Context& context, uint64_t seed, int64_t first, int64_t rows) {
  auto values = randn<float>((first + rows) * kChannels, seed, 1, 2);
  values.erase(values.begin(), values.begin() + first * kChannels);
  return leaf(context, {rows, kChannels}, values);
}

struct Result {
  std::vector<float> y, dx, running_mean, running_variance;
  Tensor dgain, dbias;
};

// Runs batch norm on the `rows` rows that begin at row `first`.
Result run_norm(Context& context, Net& net, int64_t first, int64_t rows) {
  const Tensor x = part(context, 1, first, rows);
  const Tensor y = net.forward(x);
  backward(sum(mul(y, part(context, 2, first, rows).detach())));
  return {.y = to_host<float>(y),
          .dx = to_host<float>(x.grad()),
          .running_mean = to_host<float>(net.norm.running_mean.value),
          .running_variance = to_host<float>(net.norm.running_var.value),
          .dgain = net.norm.weight.value.grad(),
          .dbias = net.norm.bias.value.grad()};
}

template <typename T>
std::vector<double> slice_of(const std::vector<T>& values, int64_t begin, int64_t count) {
  const auto from = values.begin() + begin;
  return to_f64(std::vector<T>(from, from + count));
}

}  // namespace

TEST_CASE("synchronised batch norm is that of one rank with all rows") {
  const auto all = world().group();
  const auto group = all->split(0, all->rank(), "batch norm", comm::Lane::kModel);
  const int ranks = all->size(), rank = all->rank();
  Context context(small_context(1));
  Net whole, net;
  materialize(whole, context, DType::kF32, 1);
  materialize(net, context, DType::kF32, 1);
  comm::synchronise_batch_norm(net, *group);
  const int64_t first = rows_before(rank, ranks), rows = rows_of(rank, ranks);
  const Result want = run_norm(context, whole, 0, rows_before(ranks, ranks));
  const Result got = run_norm(context, net, first, rows);
  // Allows a few f32 roundings of numbers below 8, in forward and in backward.
  constexpr double kNear = 32 * 0x1p-24 * 8;
  const int64_t begin = first * kChannels, count = rows * kChannels;
  CHECK(max_error(got.y, slice_of(want.y, begin, count)) <= kNear);
  CHECK(max_error(got.dx, slice_of(want.dx, begin, count)) <= kNear);
  CHECK(max_error(got.running_mean, to_f64(want.running_mean)) <= kNear);
  CHECK(max_error(got.running_variance, to_f64(want.running_variance)) <= kNear);
  // Gradients of parameters are local to each rank and summed over ranks as usual.
  all->all_reduce_sum(got.dgain, {.tag = "gain"});
  all->all_reduce_sum(got.dbias, {.tag = "bias"});
  CHECK(max_error(to_host<float>(got.dgain), to_f64(to_host<float>(want.dgain))) <= 8 * kNear);
  CHECK(max_error(to_host<float>(got.dbias), to_f64(to_host<float>(want.dbias))) <= 8 * kNear);
}

TEST_CASE("buffers of each rank's own become their mean over the ranks") {
  const auto all = world().group();
  const int ranks = all->size();
  Context context(small_context(1));
  struct Counters : Module {
    Counters()
        : weight(declare("weight", {1}, Init::ones())),
          same(declare_buffer({.name = "same", .shape = {2}, .initial = 7})),
          own(declare_buffer({.name = "own", .shape = {2}, .ranks = BufferRanks::kMean})) {}
    Parameter& weight;
    shale::Buffer& same;
    shale::Buffer& own;
  } counters;
  {
    comm::DataParallel parallel(counters, {}, context, *all, {});
    REQUIRE_FALSE(counters.own.needs_memory());
    float* values = counters.own.value.view().as<float>();
    values[0] = float(all->rank());
    values[1] = float(4 * all->rank() + 2);
    parallel.average_buffers();
    const double mean = 0.5 * (ranks - 1);
    const std::vector<double> want = {mean, 4 * mean + 2};
    CHECK(max_error(to_host<float>(counters.own.value), want) <= 0x1p-24 * 64);
    CHECK(to_host<float>(counters.same.value) == std::vector<float>{7, 7});
  }
  CHECK(counters.own.needs_memory());
}

}  // namespace shale::test
