#include "shale/bench/support/train_loop.h"

#include <algorithm>

#include "shale/base/cpu_affinity.h"
#include "shale/base/rng.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/ordered_sum.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/parallel_setup.h"
#include "shale/runtime/data/tokens/batches.h"

namespace shale::bench {
namespace {

constexpr float kLearningRate = 1e-4f;
constexpr float kClip = 1;

models::LanguageModelConfig model_config(const TrainOptions& options) {
  if (options.config) return *options.config;
  models::LanguageModelConfig config = models::preset(options.model, options.seq_len);
  if (options.layers > 0) config.layers = options.layers;
  if (options.seq_len > config.context) {
    throw ConfigError(cat("--seq-len is ", options.seq_len, ", ", options.model,
                          " has a context of ", config.context));
  }
  return config;
}

models::RunConfig run_config(const TrainOptions& options) {
  models::RunConfig run;
  run.micro_batch = options.micro_batch;
  run.global_batch = options.global_batch;
  run.clip = kClip;
  run.device = to_string(options.device.type);
  run.loss_scale = 0;
  run.cuda_graph = options.cuda_graph;
  run.seed = static_cast<int64_t>(options.seed);
  run.zero = options.zero;
  run.no_overlap = !options.overlap;
  run.offload = options.offload;
  run.offload_activations = options.offload_activations;
  run.optimizer = options.optimizer;
  models::resolve_optimizer(run);
  return run;
}

}  // namespace

const char* phase_name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"prepare", "forward",   "backward",
                                           "reduce",  "optimizer", "loss"};
  return kNames[size_t(phase)];
}

int64_t MemoryParts::sum() const {
  return parameters + gradients + optimizer + saved_activations + workspace + other;
}

TrainLoop::TrainLoop(TrainOptions& options, comm::World& world) : world_(world) {
  if (options.global_batch == 0) options.global_batch = options.micro_batch * world.size();
  layout_ = {.global_batch = options.global_batch,
             .micro_batch = options.micro_batch,
             .ranks = world.size()};
  layout_.validate();
  // Before anything starts threads: they inherit the mask that they are born with.
  options.threads = resolve_threads(options.threads, world.local_size());
  options_ = options;
  context_ = std::make_unique<Context>(ContextOptions{.device = options.device,
                                                      .threads = options.threads,
                                                      .dependent_launch = options.dependent_launch,
                                                      .seed = options.seed});
  group_ = world.group({}, context_->backend());
  const models::RunConfig run = run_config(options);
  models::check_graphs(run, context_->device(), *group_);
  model_ =
      models::make_language_model(model_config(options), {.loss_chunk_rows = options.loss_chunk});
  const std::vector<Module*> blocks = model_->blocks();
  for (Module* block : blocks) block->set_recompute(options.recompute);
  step_ = std::make_unique<models::TrainStep>(
      *context_, comm::ShardGroups{.shard = group_.get()},
      models::StepModel{*model_, blocks,
                        [this](const DeviceBatch& batch) {
                          return model_->loss(batch["inputs"], batch["targets"]);
                        }},
      models::step_options(run, options.dtype, layout_.micro_batches(0)),
      [&](std::vector<OptimShard> shards) {
        return models::make_optimizer(run, blocks, std::move(shards));
      },
      static_cast<models::StepObserver*>(this));
}

TrainLoop::~TrainLoop() = default;

Batch TrainLoop::random_tokens(int64_t micro) const {
  const auto vocab = uint32_t(model_->config().vocab);
  const int64_t first = layout_.first_position(steps_, world_.rank(), micro);
  const PhiloxKey key = rng_key(options_.seed, RngDomain::kTest);
  Batch batch{.first_position = first, .count = options_.micro_batch};
  const TokenBatch tokens(batch, options_.micro_batch, options_.seq_len);
  for (int64_t row = 0; row < options_.micro_batch; ++row) {
    for (int64_t t = 0; t <= options_.seq_len; ++t) {
      const auto word = philox({uint32_t(t), uint32_t(first + row), 0, 0}, key)[0];
      const auto token = int32_t(uint64_t{word} * vocab >> 32);
      const auto at = size_t(row * options_.seq_len + t);
      if (t < options_.seq_len) tokens.inputs[at] = token;
      if (t > 0) tokens.targets[at - 1] = token;
    }
  }
  return batch;
}

void TrainLoop::begin(Phase phase) {
  context_->set_tracer(&tracers_[size_t(phase)]);
  recorder_->set_phase(phase_name(phase));
  phase_start_ = Clock::now();
}

void TrainLoop::end(Phase phase) {
  phase_seconds_[size_t(phase)] += seconds_since(phase_start_);
  context_->set_tracer(nullptr);
}

void TrainLoop::ends(models::StepPhase phase) {
  end(Phase(phase));
  if (phase != models::StepPhase::kForward) return;
  const auto live = context_->allocator().stats().current;
  saved_activation_bytes_ = std::max(saved_activation_bytes_, live[size_t(MemoryTag::kActivation)]);
}

StepTime TrainLoop::step(KernelRecorder& recorder) {
  recorder_ = &recorder;
  const Context::Observation observation(*context_, recorder);
  std::vector<Batch> batches;  // made beforehand: the trainer has a thread for it
  for (int64_t micro = 0; micro < layout_.micro_batches(steps_); ++micro) {
    batches.push_back(random_tokens(micro));
  }
  group_->barrier("bench step");

  const auto tokens = double(tokens_per_step());
  StepTime result;
  const Clock::time_point start = Clock::now();
  step_->run(
      {.step = steps_,
       .lr = kLearningRate,
       .weight = tokens,
       .first_position = layout_.begin(steps_),
       .next_batch = [&, next = size_t{0}]() mutable -> const Batch& { return batches[next++]; }});
  begin(Phase::kLoss);
  step_->finish();
  result.loss = float(comm::ordered_sum(*group_, outcome_.losses) / tokens);
  end(Phase::kLoss);
  result.seconds = seconds_since(start);
  result.exposed_comm_seconds = outcome_.exposed_s;
  ++steps_;
  return result;
}

void TrainLoop::reset_times() {
  for (Tracer& tracer : tracers_) tracer.reset();
  phase_seconds_.fill(0);
}

int64_t TrainLoop::parameter_count() const {
  int64_t count = 0;
  for (const Parameter* parameter : model_->parameters()) count += parameter->numel();
  return count;
}

MemoryParts TrainLoop::memory() const {
  const MemoryStats stats = context_->allocator().stats();
  Context* const host = step_->host_context();
  const auto current = [&](MemoryTag tag) { return stats.current[size_t(tag)]; };
  MemoryParts parts{.saved_activations = saved_activation_bytes_,
                    .workspace = current(MemoryTag::kWorkspace),
                    .other = current(MemoryTag::kComm) + current(MemoryTag::kData),
                    .peak_reserved = stats.peak_reserved,
                    .peak_allocated = stats.peak_allocated,
                    .host_peak = host == nullptr ? 0 : host->allocator().stats().peak_allocated};
  parts.parameters = current(MemoryTag::kParameter);
  const auto on_device = [&](const Tensor& x) {
    return x.defined() && &x.context() == context_.get() ? x.bytes() : 0;
  };
  for (const OptimShard& shard : step_->parallel().shards()) {
    parts.gradients += on_device(shard.grad);
    if (shard.compute.defined()) parts.optimizer += on_device(shard.master);
  }
  for (const optim::OptimState& state : step_->optimizer().states()) {
    parts.optimizer += on_device(state.value);
  }
  return parts;
}

}  // namespace shale::bench
