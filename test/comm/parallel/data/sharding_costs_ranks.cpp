// Compares the memory and traffic of sharding with the formulas.
#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::DataParallelOptions;
using comm::Traffic;

struct Precision {
  DType compute, reduce;
};
constexpr Precision kPrecisions[] = {
    {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}};

// The model is large enough to have little padding, and small enough for eight ranks on two cores.
models::LanguageModelConfig wide_model() {
  models::LanguageModelConfig config = tiny_model();
  config.layers = 4;
  config.width = 128;
  config.heads = 4;
  return config;
}

// One rank's model and optimizer, and their memory.
struct Run {
  Run(comm::ProcessGroup& group, const DataParallelOptions& options)
      : context(small_context(1)),
        model(models::make_language_model(wide_model())),
        parallel(*model, model->blocks(), context, group, options),
        optimizer(parallel.shards(), {}) {}

  void micro_batch(bool last) {
    const auto ids = rand_int<int32_t>(kLength, 7, 0, 60);
    const Tensor batch = from_host<int32_t>(context, ids, {1, kLength});
    const Tensor loss = model->loss(batch, batch);
    parallel.begin_backward(last);
    backward(loss);
  }
  void step(int64_t micro_batches = 1) {
    optimizer.prepare(context, 0, 1e-3f);
    for (int64_t j = 0; j < micro_batches; ++j) micro_batch(j + 1 == micro_batches);
    parallel.finish_gradients();
    parallel.clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
  }
  int64_t bytes(MemoryTag tag) const {
    return context.allocator().stats().current[static_cast<size_t>(tag)];
  }
  int64_t state_bytes() const {
    return bytes(MemoryTag::kParameter) + bytes(MemoryTag::kGradient) +
           bytes(MemoryTag::kOptimizer);
  }
  // Returns the number of elements of one unit or of all units, including padding.
  int64_t numel(const comm::FlatUnit& unit) const {
    int64_t count = 0;
    for (const auto& buffer : unit.buffers()) count += buffer->layout().numel;
    return count;
  }
  int64_t numel() const {
    int64_t count = 0;
    for (const auto& unit : parallel.units()) count += numel(*unit);
    return count;
  }

  mutable Context context;
  std::unique_ptr<models::LanguageModel> model;
  DataParallel parallel;
  optim::AdamW optimizer;
};

}  // namespace

TEST_CASE("parameters, gradients and states take p + g + 12 bytes, divided where sharded",
          "[many_ranks]") {
  const auto group = world().group();
  const int64_t ranks = group->size();
  if (ranks > 8) return;
  for (const Precision& precision : kPrecisions) {
    for (const int64_t stage : {0, 1, 2, 3}) {
      CAPTURE(ranks, stage, dtype_name(precision.compute), dtype_name(precision.reduce));
      Run run(*group, {.compute = precision.compute,
                       .reduce = precision.reduce,
                       .stage = static_cast<int>(stage)});
      run.step();
      const int64_t p = dtype_size(precision.compute), g = dtype_size(precision.reduce);
      // Parameters in f32 need no separate master weights: a stage-3 shard is the master.
      const bool has_master = precision.compute != DType::kF32;
      const int64_t parameters = stage == 3 && has_master ? 0 : p;
      const int64_t states = has_master ? 12 : 8;
      const int64_t whole =
          (stage < 3 ? parameters : 0) + (stage < 2 ? g : 0) + (stage < 1 ? states : 0);
      const int64_t sharded = parameters + g + states - whole;
      const int64_t want = run.numel() * whole + run.numel() / ranks * sharded;
      CHECK(run.state_bytes() == want);
      // The published formula gives an upper bound.
      CHECK(want <= run.numel() * (stage < 3 ? p : 0) + run.numel() * (stage < 2 ? g : 0) +
                        run.numel() * (stage < 1 ? 12 : 0) +
                        run.numel() / ranks *
                            ((stage < 3 ? 0 : p) + (stage < 2 ? 0 : g) + (stage < 1 ? 0 : 12)));
    }
  }
}

TEST_CASE("padding is less than a percent of GPT-2 124M on up to 64 ranks") {
  models::LanguageModelConfig config = models::preset("gpt2-124m", 1024);
  const auto model = models::make_language_model(config);
  for (const int ranks : {1, 2, 4, 8, 64}) {
    int64_t padded = 0, count = 0;
    for (const comm::UnitPlan& plan : comm::plan_units(*model, model->blocks())) {
      padded += comm::flat_layout(plan.parameters, ranks).numel;
      for (const Parameter* parameter : plan.parameters) count += parameter->numel();
    }
    CAPTURE(ranks, padded, count);
    CHECK(padded < count + count / 100);
  }
}

TEST_CASE("stage 3 holds the root, two units of parameters and two of gradients at most") {
  const auto group = world().group();
  for (const bool overlap : {true, false}) {
    CAPTURE(overlap);
    Run run(*group, {.stage = 3, .overlap = overlap});
    int64_t parameters = 0, gradients = 0;
    const auto look = [&] {
      parameters = std::max(parameters, run.bytes(MemoryTag::kParameter));
      gradients = std::max(gradients, run.bytes(MemoryTag::kGradient));
    };
    for (const auto& unit : run.parallel.units()) {
      for (const HookPoint point : {HookPoint::kBeforeForward, HookPoint::kAfterForward,
                                    HookPoint::kBeforeBackward, HookPoint::kAfterBackward}) {
        unit->module().add_hook(point, look);
      }
      for (const Parameter* parameter : unit->parameters()) {
        leaf_state(parameter->value).ready_hooks.push_back(look);
      }
    }
    const int64_t parameters_before = run.bytes(MemoryTag::kParameter);
    const int64_t gradients_before = run.bytes(MemoryTag::kGradient);
    run.step();
    run.step();
    const int64_t block = run.numel(run.parallel.unit(*run.model->blocks().front()));
    const int64_t root = run.numel(run.parallel.unit(*run.model));
    const int64_t units = overlap ? 2 : 1;
    CHECK(parameters - parameters_before == 4 * (root + units * block));
    CHECK(gradients - gradients_before <= 4 * (root + 2 * block));
    // All memory of the run is released.
    CHECK(run.bytes(MemoryTag::kParameter) == parameters_before);
    CHECK(run.bytes(MemoryTag::kGradient) == gradients_before);
  }
}

TEST_CASE("a step sends 2, k + 1 or 3 k times the model, times (N - 1) / N", "[many_ranks]") {
  const auto group = world().group();
  const double share = double(group->size() - 1) / group->size();
  const int64_t k = 2;  // number of micro-batches
  for (const Precision& precision : kPrecisions) {
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage, dtype_name(precision.compute), dtype_name(precision.reduce));
      Run run(*group, {.compute = precision.compute,
                       .reduce = precision.reduce,
                       .reshard_after_forward = comm::ReshardAfterForward::kYes,
                       .stage = stage});
      run.step(k);
      const auto sent = [&](Traffic traffic) {
        return group->traffic().totals(traffic).sent_bytes;
      };
      const double before[] = {sent(Traffic::kParameters), sent(Traffic::kGradients),
                               sent(Traffic::kControl)};
      run.step(k);
      const double parameters = share * double(run.numel() * dtype_size(precision.compute));
      const double gradients = share * double(run.numel() * dtype_size(precision.reduce));
      const double reductions = stage == 0 ? 2 : stage == 1 ? 1 : double(k);
      const double gathers = stage == 0 ? 0 : stage == 3 ? 2 * double(k) : 1;
      CHECK(sent(Traffic::kGradients) - before[1] == Approx(reductions * gradients).margin(1));
      CHECK(sent(Traffic::kParameters) - before[0] == Approx(gathers * parameters).margin(1));
      CHECK(sent(Traffic::kControl) - before[2] < 1e-3 * parameters + 1);
    }
  }
}

TEST_CASE("sums over replicas begin during backward, as those over shards do") {
  const auto group = world().group();
  if (group->size() != 4) return;
  comm::Mesh mesh(*group, {{"replica", 2}, {"node", 2}});
  comm::ProcessGroup& replicas = mesh.group("replica");
  for (const int stage : {1, 2, 3}) {
    for (const bool overlap : {true, false}) {
      CAPTURE(stage, overlap);
      Context context(small_context(1));
      const auto model = models::make_language_model(tiny_model());
      DataParallel parallel(*model, model->blocks(), context,
                            {.shard = &mesh.group("node"), .replicate = &replicas},
                            {.stage = stage, .overlap = overlap});
      const auto calls = [&] { return replicas.traffic().totals(Traffic::kGradients).calls; };
      const auto before = calls();
      auto during = before;
      for (const Parameter* parameter : parallel.unit(*model).parameters()) {
        leaf_state(parameter->value).ready_hooks.push_back([&] { during = calls(); });
      }
      const auto ids = rand_int<int32_t>(kLength, 7, 0, 60);
      const Tensor batch = from_host<int32_t>(context, ids, {1, kLength});
      backward(model->loss(batch, batch));
      parallel.finish_gradients();
      CHECK(calls() - before == 4);  // one call for the root and for each of three blocks
      if (overlap) CHECK(during - before >= 3);
    }
  }
}

}  // namespace shale::test
