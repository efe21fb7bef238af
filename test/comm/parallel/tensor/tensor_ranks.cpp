// Models whose layers are cut over ranks: against those that nobody cut, and with equal leaves to
// the last bit.
#include "shale/base/error.h"
#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/tensor/group_exchange.h"
#include "shale/comm/parallel/tensor/tensor_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/muon.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"
#include "shale/test/support/ranks/watched_exchange.h"

namespace shale::test {
namespace {

using comm::ShardGroups;

// Four heads, so that there are leaves for four ranks; no width is the same as another.
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

// This many ranks share each layer, the rest are data parallel.
struct TensorMesh {
  TensorMesh(comm::ProcessGroup& all, int tensor) : mesh(all, {{"shard", 0}, {"tensor", tensor}}) {}
  ShardGroups groups() {
    return {.shard = &mesh.group("shard"),
            .tensor = &mesh.group("tensor"),
            .shard_and_tensor = &mesh.flatten({"shard", "tensor"})};
  }
  comm::Mesh mesh;
};

// The sizes of a tensor axis that the world has room for.
std::vector<int> tensor_sizes(int ranks) {
  std::vector<int> sizes;
  for (const int size : {1, 2, 4}) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

bool is_power_of_two(int ranks) {
  return (ranks & (ranks - 1)) == 0;
}

ShardGroups one_rank() {
  return {.shard = &alone(), .tensor = &alone()};
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
    WatchedExchange exchange(*group, {"gemm"});
    exchange.set_overlap(overlap);
    context.set_tracer(&exchange.tracer);
    const Tensor x = leaf(context, {2, 4, C}, randn<float>(8 * C, 10 + uint64_t(group->rank())));
    const Tensor up = leaf(context, {F, C}, randn<float>(F * C, 2));
    const Tensor down = leaf(context, {C, F}, randn<float>(C * F, 3));
    const Tensor y = nn::over_leaves(&exchange, x, {}, [&](const Tensor& rows, size_t, Tensor) {
      return linear(linear(rows, up), down);
    });
    backward(sum(y));
    // Both products of the gradient of what `down` makes, and what `up` wants before.
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
  std::vector<std::vector<float>> values;
  double sent = 0;  // bytes
  std::vector<int64_t> products_meanwhile;  // of each rank's rows that travelled by pieces
};

// A block of two products of so many rows that each leaf of two has a piece.
PiecesRun run_pieces(comm::ProcessGroup& group, int own_leaves, int pieces, bool overlap,
                     DType dtype) {
  constexpr int64_t C = 16, F = 24;
  const int leaves = group.size() * own_leaves;
  const int64_t T = 64 * own_leaves, count = 2 * T * C;
  Context context(small_context(1));
  WatchedExchange exchange(group, {"gemm"}, leaves);
  exchange.set_overlap(overlap);
  exchange.set_row_pieces(pieces);
  context.set_tracer(&exchange.tracer);
  const Tensor x = leaf(context, {2, T, C}, randn<float>(count, 10 + uint64_t(group.rank())));
  std::vector<Tensor> ups, downs;
  for (int i = 0; i < own_leaves; ++i) {
    const auto seed = uint64_t(100 + exchange.first_leaf() + i);
    ups.push_back(leaf(context, {F, C}, randn<float>(F * C, seed)));
    downs.push_back(leaf(context, {C, F}, randn<float>(F * C, 100 + seed)));
  }
  group.reset_traffic();
  const Tensor y = nn::over_leaves_by_pieces(
      &exchange, cast(x, dtype), {},
      [&](const Tensor& rows, size_t i, const Tensor&, const OpPieces& by) {
        const Tensor hidden =
            linear(rows, cast(ups[i], dtype), {}, {}, Operands::kPlain, {.in = by.in});
        return linear(hidden, cast(downs[i], dtype), {}, {}, Operands::kPlain, {.out = by.out});
      });
  PiecesRun run;
  run.sent = group.traffic().totals(comm::Traffic::kActivations).sent_bytes;
  run.products_meanwhile = exchange.shifts;
  const Tensor wide = cast(y, DType::kF32);
  backward(sum(mul(wide, wide)));
  run.values = {to_host<float>(wide), to_host<float>(x.grad())};
  for (const std::vector<Tensor>& all : {ups, downs}) {
    for (const Tensor& one : all) run.values.push_back(to_host<float>(one.grad()));
  }
  return run;
}

}  // namespace

TEST_CASE("rows travel forward while others are multiplied, with the same sums", "[tensor]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks == 1) return;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int own_leaves : {1, 2}) {
      const PiecesRun whole = run_pieces(*group, own_leaves, 1, true, dtype);
      CHECK(whole.products_meanwhile.empty());
      for (const int pieces : {0, 2}) {
        PiecesRun waited;  // without overlap
        for (const bool overlap : {false, true}) {
          CAPTURE(dtype_name(dtype), own_leaves, pieces, overlap);
          const PiecesRun run = run_pieces(*group, own_leaves, pieces, overlap, dtype);
          // How a row is summed may depend on how many are multiplied at once.
          for (size_t i = 0; i < whole.values.size(); ++i) {
            const std::vector<double> want = to_f64(whole.values[i]);
            CHECK(max_error(run.values[i], want) <=
                  (dtype == DType::kF32 ? 1e-5 : 2e-2) * max_abs(want));
          }
          if (overlap) CHECK(run.values == waited.values);
          waited = run;
          CHECK(run.sent == whole.sent);
          if (pieces == 2 && ranks * own_leaves % 2 != 0) {  // no piece has a part of a leaf
            CHECK(run.products_meanwhile.empty());
            continue;
          }
          // From each rank its rows, and from each a summand of this one's.
          REQUIRE(run.products_meanwhile.size() == size_t(2 * (ranks - 1)));
          if (pieces == 2 && ranks > 2) continue;  // a piece has rows of several ranks
          for (const int64_t products : run.products_meanwhile) CHECK(products >= 1);
        }
      }
    }
  }
}

TEST_CASE("four leaves make the same bits on one, two and four tensor ranks", "[tensor][gate]") {
  const auto group = world().group();
  if (!is_power_of_two(group->size()) || group->size() > 4) return;
  const char* family = GENERATE("gpt2", "llama", "qwen3", "olmo2", "olmoe");
  const auto model = std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family);
  TrainOptions options = small_run(model);
  options.tensor_leaves = 4;
  // Over data ranks the order of sums is fixed by reproducible runs alone.
  for (const bool reproducible : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      options.parallel = {.stage = stage, .reproducible = reproducible};
      const Trained want = train(one_rank(), options);
      for (const int tensor : tensor_sizes(group->size())) {
        if (!reproducible && tensor != group->size()) continue;
        CAPTURE(family, reproducible, tensor, stage);
        TensorMesh mesh(*group, tensor);
        CHECK(same(train(mesh.groups(), options), want));
      }
    }
  }
}

namespace {

// Sums are rounded in another order: 2^-24 for each of some hundred additions.
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
  if (!is_power_of_two(group->size()) || group->size() > 4) return;
  const char* family = GENERATE("gpt2", "llama");
  auto model = std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family);
  model.context = 128;
  TrainOptions options = small_run(model);
  options.length = 128;  // 64 rows of a micro-batch for each leaf
  options.global_batch = 8;
  options.tensor_leaves = 4;
  options.parallel = {.stage = 1, .reproducible = true};
  const Trained of_leaves = train(one_rank(), options);
  for (const int pieces : {0, 1, 2}) {
    options.tensor_pieces = pieces;
    options.recompute = Recompute::kNone;
    const Trained want = train(one_rank(), options);
    check_follows(want, of_leaves);
    for (const int tensor : tensor_sizes(group->size())) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        CAPTURE(family, tensor, pieces, static_cast<int>(recompute));
        options.recompute = recompute;
        TensorMesh mesh(*group, tensor);
        CHECK(same(train(mesh.groups(), options), want));
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
  TensorMesh mesh(*group, group->size());
  const Trained want = train(ShardGroups{.shard = &alone()}, options);
  const Trained got = train(mesh.groups(), options);
  CAPTURE(family, group->size());
  check_follows(got, want);
  CHECK_FALSE(same(got, want));  // the comparison is of another way to compute
}

TEST_CASE("Muon orthogonalizes matrices whose leaves are on several ranks as one rank does",
          "[tensor][gate]") {
  const auto group = world().group();
  if (!is_power_of_two(group->size()) || group->size() > 4) return;
  const char* family = GENERATE("gpt2", "olmoe");
  TrainOptions options =
      small_run(std::string_view(family) == "gpt2" ? small_gpt2() : small_llama(family));
  options.dropout = 0;
  options.optimizer = [](std::vector<OptimShard> shards) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::Muon>(std::move(shards), optim::MuonOptions{});
  };
  const Trained uncut = train(ShardGroups{.shard = &alone()}, options);
  options.tensor_leaves = 4;
  for (const int stage : {0, 1, 3}) {
    options.parallel = {.stage = stage, .reproducible = true};
    const Trained want = train(one_rank(), options);
    // Sums in another order change momentum, whose bf16 rounding is 2^-9 of an element at most.
    for (size_t i = 0; i < want.losses.size(); ++i) {
      CHECK(std::abs(want.losses[i] - uncut.losses[i]) < 2e-3f * uncut.losses[i]);
    }
    for (const int tensor : tensor_sizes(group->size())) {
      CAPTURE(family, tensor, stage);
      TensorMesh mesh(*group, tensor);
      CHECK(same(train(mesh.groups(), options), want));
    }
  }
}

TEST_CASE("8-bit moments of parameters that are cut have the bits of one rank", "[tensor][gate]") {
  const auto group = world().group();
  if (!is_power_of_two(group->size()) || group->size() > 4) return;
  models::LanguageModelConfig model = small_gpt2();
  model.width = 256;  // rows of a block of 64 on each of four leaves
  model.layers = 1;
  TrainOptions options = small_run(model);
  options.optimizer = [](std::vector<OptimShard> shards) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::AdamW>(
        std::move(shards), optim::AdamWOptions{.moments = optim::Moments::kInt8});
  };
  options.tensor_leaves = 4;
  for (const int stage : {0, 1, 2, 3}) {
    options.parallel = {.stage = stage, .reproducible = true};
    const Trained want = train(one_rank(), options);
    for (const int tensor : tensor_sizes(group->size())) {
      CAPTURE(tensor, stage);
      TensorMesh mesh(*group, tensor);
      CHECK(same(train(mesh.groups(), options), want));
    }
  }
  if (group->size() != 2) return;
  TensorMesh mesh(*group, 2);
  options.model->width = 160, options.tensor_leaves = 2;
  CHECK_THROWS_WITH(train(mesh.groups(), options),
                    Catch::Matchers::Contains("2 leaves with rows of 160 elements, and 64") &&
                        Catch::Matchers::Contains("want rows of a multiple of 64"));
  options.model->width = 192;
  CHECK_THROWS_WITH(train(mesh.groups(), options),
                    Catch::Matchers::Contains("want leaves that divide 3"));
}

TEST_CASE("recomputation, low precision and loss scaling change no bit of a model that is cut",
          "[tensor]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  TensorMesh mesh(*group, 2);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    TrainOptions options = small_run(small_gpt2());
    options.parallel = {.compute = compute, .stage = 1};
    options.tensor_leaves = 4;
    options.loss_scale = 1024;
    const Trained want = train(one_rank(), options);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      CAPTURE(dtype_name(compute), static_cast<int>(recompute));
      options.recompute = recompute;
      CHECK(same(train(mesh.groups(), options), want));
    }
  }
}

TEST_CASE("a plan that does not fit says what does", "[tensor]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  const models::LanguageModelConfig config = small_gpt2();
  const auto cut = [&](const comm::TensorPlan& plan, int leaves) {
    const auto model = models::make_language_model(config);
    return comm::tensor_parallel(*model, plan, *group, {.leaves = leaves});
  };
  const comm::TensorPlan plan = models::model_family("gpt2").tensor_plan(config);
  CHECK_THROWS_WITH(cut(plan, 8), Catch::Matchers::Contains("4 times 8 elements") &&
                                      Catch::Matchers::Contains("want a divisor of 4"));
  CHECK_THROWS_WITH(cut(plan, 3), Catch::Matchers::Contains("want a power of two"));
  comm::TensorPlan twice = plan;
  twice.slices("ln_f");
  CHECK_THROWS_WITH(cut(twice, 0), Catch::Matchers::Contains("ln_f.weight fits"));
  comm::TensorPlan other = plan;
  other.columns("h.*.other");
  CHECK_THROWS_WITH(cut(other, 0), Catch::Matchers::Contains("no parameter fits"));
  CHECK_THROWS_WITH(cut(comm::TensorPlan().slices("*"), 0),
                    Catch::Matchers::Contains("no layer around wte.weight"));
}

TEST_CASE("a model that ranks share is not taken for one that each of them has", "[tensor]") {
  const auto group = world().group();
  if (group->size() == 1) return;
  struct Net : Module {
    Net()
        : up(this, "up", 8, 24, Init::normal(0.2f)),
          down(this, "down", 24, 8, Init::normal(0.2f), nn::Bias::kNo) {}
    bool accepts(const Parameter& parameter, const Partition& partition) const override {
      const int dim = parameter.owner == &up ? 0 : 1;
      return partition.share == LeafShare::kCut && partition.dim == dim;
    }
    nn::Linear up, down;
  };
  const auto plan = comm::TensorPlan().columns("up").rows("down");
  {
    Context context(small_context(1));
    Net net;
    const auto exchange = comm::tensor_parallel(net, plan, *group);
    const std::string message =
        message_of<ConfigError>([&] { comm::DataParallel(net, {}, context, alone(), {}); });
    CHECK(contains(message, cat(group->size(), " ranks share the layers of root")));
    CHECK(contains(message, "ShardGroups::tensor is not set"));
  }
  Context context(small_context(1));
  Net net;
  const auto exchange = comm::tensor_parallel(net, plan, *group);
  comm::DataParallel parallel(net, {}, context,
                              ShardGroups{.shard = &alone(), .tensor = group.get()}, {});
  CHECK(contains(
      message_of<ConfigError>([&] { parallel.mean_over_ranks(full(context, {}, DType::kF32, 1)); }),
      "whether the loss is of this rank's rows or of all"));
}

}  // namespace shale::test
