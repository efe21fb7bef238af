// Tests tensor parallelism. Results are close to those of unsharded models, and have equal bits for
// equal numbers of leaves.
#include <bit>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/comm/parallel/tensor/tensor_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/optim/muon.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"
#include "shale/test/support/ranks/watched_exchange.h"

namespace shale::test {
namespace {

// Four heads, so that four ranks have one leaf each. All widths differ.
models::LanguageModelConfig small_gpt2() {
  models::LanguageModelConfig config = tiny_model();
  config.layers = 2;
  config.heads = 4;
  config.context = 16;
  return config;
}

models::LanguageModelConfig small_llama(const char* family) {
  models::LanguageModelConfig config = small_gpt2();
  config.family = family;
  config.kv_heads = 4;
  config.head_size = 8;
  config.hidden = 48;
  config.tied = std::string_view(family) == "qwen3";
  if (std::string_view(family) == "mistral") config.window = 5;
  if (std::string_view(family) == "olmoe") config.experts = 6, config.active_experts = 2;
  return config;
}

TrainOptions small_run(const models::LanguageModelConfig& model) {
  TrainOptions options{.global_batch = 16, .micro_batch = 2, .steps = 3, .keep_gradients = false};
  options.length = 16;
  options.model = model;
  if (model.family == "gpt2") options.dropout = 0.1f;
  return options;
}

// Trains with groups of `tensor` processes that share each layer. The groups are data parallel.
Trained train_over(comm::ProcessGroup& all, int tensor, const TrainOptions& options) {
  const int64_t data = all.size() / tensor;
  return train_pipeline(
      all, *options.model,
      {.tensor = tensor, .micro_batches = options.global_batch / (options.micro_batch * data)},
      options);
}

// Returns the tensor-parallel degrees that fit the number of ranks.
std::vector<int> tensor_sizes(int ranks) {
  std::vector<int> sizes;
  for (const int size : {1, 2, 4}) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

TEST_CASE("rows for gradients of weights travel behind other products", "[tensor]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks == 1) return;
  constexpr int64_t C = 16, F = 24;
  std::vector<std::vector<float>> before;
  for (const bool overlap : {false, true}) {
    Context context(small_context(1));
    WatchedExchange exchange(line_over(*group, "tensor", nullptr, overlap), 0, {"gemm"});
    context.set_tracer(&exchange.tracer);
    const Tensor x = leaf(context, {2, 4, C}, randn<float>(8 * C, 10 + uint64_t(group->rank())));
    const Tensor up = leaf(context, {F, C}, randn<float>(F * C, 2));
    const Tensor down = leaf(context, {C, F}, randn<float>(C * F, 3));
    const Tensor y = comm::across(exchange, x, {}, [&](const Tensor& rows, const Tensor&) {
      return linear(linear(rows, up), down);
    });
    backward(sum(y));
    // The gather overlaps both backward GEMMs of `down` and the input-gradient GEMM of `up`.
    REQUIRE(exchange.gathers.size() == 1);
    CHECK(exchange.gathers[0] >= 2);
    const std::vector<std::vector<float>> now = {
        to_host<float>(x.grad()), to_host<float>(up.grad()), to_host<float>(down.grad())};
    if (overlap) CHECK(now == before);
    before = now;
  }
}

namespace {

struct PiecesRun {
  std::vector<std::vector<std::vector<float>>> values;  // results of each mesh rank of this process
  double sent = 0;                                      // bytes sent
  std::vector<int64_t> products_meanwhile;              // GEMMs that overlap each transfer of rows
};

struct PiecesCase {
  DType dtype;
  int here = 1;  // number of mesh ranks per process
  int pieces = 0;
  bool overlap = true;
};

// Runs two linear layers, with so many rows that each of two mesh ranks sends its rows as a piece.
PiecesRun run_pieces(comm::ProcessGroup& group, const PiecesCase& of) {
  constexpr int64_t C = 16, F = 24, T = 64;
  Context context(small_context(1));
  comm::HostedRanks ranks(context, of.here);
  const auto line = line_over(group, "tensor", &ranks, of.overlap);
  std::vector<std::unique_ptr<WatchedExchange>> exchanges;
  for (int i = 0; i < of.here; ++i) {
    exchanges.push_back(
        std::make_unique<WatchedExchange>(line, i, std::vector<std::string>{"gemm"}));
    exchanges.back()->set_row_pieces(of.pieces);
  }
  context.set_tracer(&exchanges.front()->tracer);
  PiecesRun run;
  run.values.resize(size_t(of.here));
  group.reset_traffic();
  std::vector<Tensor> wide(size_t(of.here)), x = wide, up = wide, down = wide;
  ranks.run([&](int i) {
    WatchedExchange& exchange = *exchanges[size_t(i)];
    const auto at = size_t(i);
    const auto seed = uint64_t(100 + exchange.rank());
    x[at] = leaf(context, {2, T, C}, randn<float>(2 * T * C, seed));
    up[at] = leaf(context, {F, C}, randn<float>(F * C, 100 + seed));
    down[at] = leaf(context, {C, F}, randn<float>(F * C, 200 + seed));
    const Tensor y = comm::across(exchange, cast(x[at], of.dtype), {},
                                  [&](const Tensor& rows, const Tensor& residual) {
                                    CHECK(!residual.defined());
                                    const Tensor hidden = linear(rows, cast(up[at], of.dtype));
                                    return linear(hidden, cast(down[at], of.dtype), {}, residual);
                                  });
    wide[at] = cast(y, DType::kF32);
  });
  run.sent = group.traffic().totals(comm::Traffic::kActivations).sent_bytes;
  run.products_meanwhile = exchanges.front()->shifts;
  ranks.run([&](int i) {
    const auto at = size_t(i);
    backward(sum(mul(wide[at], wide[at])));
    run.values[at] = {to_host<float>(wide[at]), to_host<float>(x[at].grad()),
                      to_host<float>(up[at].grad()), to_host<float>(down[at].grad())};
  });
  return run;
}

// The order of additions in a row of a GEMM may depend on the GEMM's number of rows.
void check_near(const PiecesRun& got, const PiecesRun& want, DType dtype) {
  for (size_t rank = 0; rank < want.values.size(); ++rank) {
    for (size_t i = 0; i < want.values[rank].size(); ++i) {
      const std::vector<double> values = to_f64(want.values[rank][i]);
      CHECK(max_error(got.values[rank][i], values) <=
            (dtype == DType::kF32 ? 1e-5 : 2e-2) * max_abs(values));
    }
  }
}

}  // namespace

TEST_CASE("rows travel forward while others are multiplied, with the same sums", "[tensor]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks == 1) return;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PiecesRun whole = run_pieces(*group, {.dtype = dtype, .pieces = 1});
    CHECK(whole.products_meanwhile.empty());
    for (const int pieces : {0, 2}) {
      PiecesRun waited;  // result without overlap
      for (const bool overlap : {false, true}) {
        CAPTURE(dtype_name(dtype), pieces, overlap);
        const PiecesRun run =
            run_pieces(*group, {.dtype = dtype, .pieces = pieces, .overlap = overlap});
        check_near(run, whole, dtype);
        if (overlap) CHECK(run.values == waited.values);
        waited = run;
        CHECK(run.sent == whole.sent);
        // Otherwise a piece would have half of a rank's rows, so the rows are sent whole.
        if (pieces == 2 && ranks % 2 != 0) {
          CHECK(run.products_meanwhile.empty());
          continue;
        }
        // Each rank receives the rows of all other ranks, and their partial sums of its own rows.
        REQUIRE(run.products_meanwhile.size() == size_t(2 * (ranks - 1)));
        if (pieces == 2 && ranks > 2) continue;  // one piece has the rows of several ranks
        for (const int64_t products : run.products_meanwhile) CHECK(products >= 1);
      }
    }
  }
}

TEST_CASE("whatever reads rows first finds all of them, and the sum has what the body gives",
          "[tensor]") {
  const auto group = world().group();
  constexpr int64_t C = 16, T = 64;  // T: rows of a rank, which are one piece
  const int n = group->size();
  Context context(small_context(1));
  comm::HostedExchange exchange(line_over(*group, "tensor"), 0);
  const auto values = [&](int rank) { return randn<float>(2 * T * C, uint64_t(10 + rank)); };
  const Tensor x = from_host<float>(context, values(group->rank()), {2, T, C});
  const Tensor weight = from_host<float>(context, randn<float>(C * C, 1), {C, C});
  std::vector<float> all;
  for (int rank = 0; rank < n; ++rank) {
    const std::vector<float> of = values(rank);
    all.insert(all.end(), of.begin(), of.end());
  }
  // The residual that the layer gets. It stands for the rows of all ranks.
  Tensor kept;
  const auto sum_of = [&](const std::function<Tensor(const Tensor&, const Tensor&)>& body) {
    return to_host<float>(comm::across(exchange, x, {}, body));
  };
  sum_of([&](const Tensor& rows, const Tensor& residual) {
    kept = residual;
    CHECK(!residual.defined());
    // reshape() is no GEMM, so it waits for all rows.
    CHECK(to_host<float>(reshape(rows, {-1})) == all);
    return linear(rows, weight);
  });
  const std::vector<float> want =
      sum_of([&](const Tensor& rows, const Tensor&) { return scale(linear(rows, weight), 2); });
  const auto passed = sum_of([&](const Tensor& rows, const Tensor& residual) {
    return linear(scale(rows, 2), weight, {}, residual);
  });
  CHECK(max_error(passed, to_f64(want)) <= 1e-5 * max_abs(to_f64(want)));
  // A slice of the rows is an ordinary tensor, which any op accepts.
  const auto half = sum_of([&](const Tensor& rows, const Tensor&) {
    const Tensor some = linear(contiguous(slice(rows, 1, 0, T)), weight);
    return n == 1 ? scale(some, 2)
                  : scale(concat({some, slice(linear(rows, weight), 1, T, n * T)}, 1), 2);
  });
  CHECK(max_error(half, to_f64(want)) <= 1e-5 * max_abs(to_f64(want)));
  // After the layer, the residual is an ordinary undefined tensor.
  CHECK(!kept.defined());
  CHECK(to_host<float>(linear(x, weight, {}, kept)) == to_host<float>(linear(x, weight)));
  if (n == 1) return;
  CHECK_THROWS_WITH(
      sum_of([&](const Tensor& rows, const Tensor& residual) {
        return scale(linear(rows, weight, {}, residual), 2);
      }),
      Catch::Matchers::Contains("passed to an op whose result is not the result of the layer"));
}

TEST_CASE("pieces of rows have the same bits for mesh ranks of one process and of several",
          "[tensor]") {
  const auto group = world().group();
  if (!std::has_single_bit(unsigned(group->size()))) return;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int pieces : {0, 1, 2}) {
      CAPTURE(dtype_name(dtype), pieces);
      const PiecesRun want =
          run_pieces(alone(), {.dtype = dtype, .here = 2 * group->size(), .pieces = pieces});
      const PiecesRun got = run_pieces(*group, {.dtype = dtype, .here = 2, .pieces = pieces});
      // No GEMM overlapped a transfer, as the rows were not sent in pieces.
      CHECK(got.products_meanwhile.empty());
      for (int i = 0; i < 2; ++i) {
        CHECK(got.values[size_t(i)] == want.values[size_t(2 * group->rank() + i)]);
      }
    }
  }
}

TEST_CASE("four shards make the same bits on one, two and four tensor ranks", "[tensor][gate]") {
  const auto group = world().group();
  if (!std::has_single_bit(unsigned(group->size())) || group->size() > 4) return;
  const char* family = GENERATE("gpt2", "llama", "qwen3", "olmo2", "olmoe");
  const auto model = std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family);
  TrainOptions options = small_run(model);
  options.tensor_shards = 4;
  // With data parallelism, the order of sums is fixed only in reproducible runs.
  for (const bool reproducible : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      options.parallel = {.stage = stage, .reproducible = reproducible};
      const Trained want = train_over(alone(), 1, options);
      for (const int tensor : tensor_sizes(group->size())) {
        if (!reproducible && tensor != group->size()) continue;
        CAPTURE(family, reproducible, tensor, stage);
        CHECK(same(train_over(*group, tensor, options), want));
      }
    }
  }
}

namespace {

// The orders of additions differ: roundings of 2^-24 for each of several hundred additions.
void check_follows(const Trained& got, const Trained& want) {
  REQUIRE(got.losses.size() == want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    CHECK(std::abs(got.losses[i] - want.losses[i]) < 2e-5f * want.losses[i]);
    CHECK(std::abs(got.norms[i] - want.norms[i]) < 1e-4f * want.norms[i]);
  }
}

}  // namespace

TEST_CASE("pieces of rows are the same on any number of tensor ranks", "[tensor][gate]") {
  const auto group = world().group();
  if (!std::has_single_bit(unsigned(group->size())) || group->size() > 4) return;
  const char* family = GENERATE("gpt2", "llama");
  auto model = std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family);
  model.context = 128;
  TrainOptions options = small_run(model);
  options.length = 128;  // so that each leaf has 64 rows of a micro-batch
  options.global_batch = 8;
  options.tensor_shards = 4;
  options.parallel = {.stage = 1, .reproducible = true};
  const Trained of_leaves = train_over(alone(), 1, options);
  for (const int pieces : {0, 1, 2}) {
    options.tensor_pieces = pieces;
    options.recompute = Recompute::kNone;
    const Trained want = train_over(alone(), 1, options);
    check_follows(want, of_leaves);
    for (const int tensor : tensor_sizes(group->size())) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        CAPTURE(family, tensor, pieces, static_cast<int>(recompute));
        options.recompute = recompute;
        CHECK(same(train_over(*group, tensor, options), want));
      }
    }
  }
}

TEST_CASE("a model that is cut follows one that is not", "[tensor]") {
  const auto group = world().group();
  if (group->size() != 2 && group->size() != 4) return;
  const char* family = GENERATE("gpt2", "llama", "qwen3", "mistral", "qwen2", "olmo2", "olmoe");
  const auto model = std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family);
  TrainOptions options = small_run(model);
  const Trained want = train_over(alone(), 1, options);
  const Trained got = train_over(*group, group->size(), options);
  CAPTURE(family, group->size());
  check_follows(got, want);
  CHECK_FALSE(same(got, want));  // the two runs add in different orders
}

TEST_CASE("Muon orthogonalizes matrices whose shards are on several ranks as one rank does",
          "[tensor][gate]") {
  const auto group = world().group();
  if (!std::has_single_bit(unsigned(group->size())) || group->size() > 4) return;
  const char* family = GENERATE("gpt2", "olmoe");
  TrainOptions options =
      small_run(std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family));
  options.dropout = 0;
  options.optimizer = [](std::vector<OptimShard> shards) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::Muon>(std::move(shards), optim::MuonOptions{});
  };
  const Trained uncut = train_over(alone(), 1, options);
  options.tensor_shards = 4;
  for (const int stage : {0, 1, 3}) {
    options.parallel = {.stage = stage, .reproducible = true};
    const Trained want = train_over(alone(), 1, options);
    // The orders of additions differ, which changes the momentum; its rounding to bf16 is at most
    // 2^-9.
    for (size_t i = 0; i < want.losses.size(); ++i) {
      CHECK(std::abs(want.losses[i] - uncut.losses[i]) < 2e-3f * uncut.losses[i]);
    }
    for (const int tensor : tensor_sizes(group->size())) {
      CAPTURE(family, tensor, stage);
      CHECK(same(train_over(*group, tensor, options), want));
    }
  }
}

TEST_CASE("8-bit moments of parameters that are cut have the bits of one rank", "[tensor][gate]") {
  const auto group = world().group();
  if (!std::has_single_bit(unsigned(group->size())) || group->size() > 4) return;
  models::LanguageModelConfig model = small_gpt2();
  model.width = 256;  // a block of 64 rows on each of four leaves
  model.layers = 1;
  TrainOptions options = small_run(model);
  options.optimizer = [](std::vector<OptimShard> shards) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::AdamW>(std::move(shards),
                                          optim::AdamWOptions{.moments = optim::Moments::kInt8});
  };
  options.tensor_shards = 4;
  for (const int stage : {0, 1, 2, 3}) {
    options.parallel = {.stage = stage, .reproducible = true};
    const Trained want = train_over(alone(), 1, options);
    for (const int tensor : tensor_sizes(group->size())) {
      CAPTURE(tensor, stage);
      CHECK(same(train_over(*group, tensor, options), want));
    }
  }
  if (group->size() != 2) return;
  options.model->width = 160, options.tensor_shards = 2;
  CHECK_THROWS_WITH(
      train_over(*group, 2, options),
      Catch::Matchers::Contains("2 tensor ranks with rows of 160 elements, and 64") &&
          Catch::Matchers::Contains("expected a row length that is a multiple of 64"));
  options.model->width = 192;
  CHECK_THROWS_WITH(train_over(*group, 2, options),
                    Catch::Matchers::Contains("expected a number of tensor ranks that divides 3"));
}

TEST_CASE("recomputation, low precision and loss scaling change no bit of a model that is cut",
          "[tensor]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    TrainOptions options = small_run(small_gpt2());
    options.parallel = {.compute = compute, .stage = 1};
    options.tensor_shards = 4;
    options.loss_scale = 1024;
    const Trained want = train_over(alone(), 1, options);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      CAPTURE(dtype_name(compute), static_cast<int>(recompute));
      options.recompute = recompute;
      CHECK(same(train_over(*group, 2, options), want));
    }
  }
}

TEST_CASE("layers that ranks cannot share say what does fit", "[tensor]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  const auto refused = [&](int here, const std::function<void(Module&)>& change,
                           const std::string& text) {
    Context context(small_context(1));
    comm::Parallel parallel(*group, context, {.tensor = 2 * here, .tensor_here = here});
    const std::string message = message_of<ConfigError>([&] {
      parallel.build<models::LanguageModel>({}, [&] {
        auto model = models::make_language_model(small_gpt2());
        change(*model);
        return model;
      });
    });
    CAPTURE(message);
    CHECK(contains(message, text));
  };
  const auto as_it_is = [](Module&) {};
  refused(4, as_it_is, "4 units of 8 elements");
  refused(4, as_it_is, "expected a number of parts that divides 4");
  refused(
      1, [](Module& model) { model.find_parameter("ln_f.weight")->split = {}; },
      "no layer declares how ranks share ln_f.weight");
}

TEST_CASE("a model that ranks share is not taken for one that each of them has", "[tensor]") {
  const auto group = world().group();
  if (group->size() == 1) return;
  struct Net : Module {
    Net()
        : up(this, "up", 8, 24, Init::normal(0.2f)),
          down(this, "down", 24, 8, Init::normal(0.2f), nn::Bias::kNo) {
      up.split_outputs();
      down.split_inputs();
    }
    nn::Linear up, down;
  };
  {
    Context context(small_context(1));
    Net net;
    comm::HostedExchange exchange(line_over(*group, "tensor"), 0);
    comm::tensor_parallel(net, *group, exchange);
    const std::string message =
        message_of<ConfigError>([&] { comm::DataParallel(net, {}, context, alone(), {}); });
    CHECK(contains(message, cat(group->size(), " tensor-parallel ranks share the layers of root")));
    CHECK(contains(message, "ShardGroups::tensor is not set"));
  }
  Context context(small_context(1));
  Net net;
  comm::Parallel over(*group, context, {.tensor = group->size()});
  over.cut({&net}, {});
  comm::DataParallel parallel(net, {}, context, over.groups(), {});
  CHECK(contains(
      message_of<ConfigError>([&] { parallel.mean_over_ranks(full(context, {}, DType::kF32, 1)); }),
      "covers all rows or only this rank's rows"));
}

}  // namespace shale::test
