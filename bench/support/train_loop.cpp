#include "shale/bench/support/train_loop.h"

#include <algorithm>

#include "shale/base/cpu_affinity.h"
#include "shale/base/rng.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/ordered_sum.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::bench {
namespace {

constexpr float kLearningRate = 1e-4f;
constexpr float kClip = 1;

models::LanguageModelConfig model_config(const TrainOptions& options) {
  models::LanguageModelConfig config = models::preset(options.model, options.seq_len);
  if (options.layers > 0) config.layers = options.layers;
  config.loss_chunk_rows = options.loss_chunk;
  config.recompute = options.recompute;
  if (options.seq_len > config.context) {
    throw ConfigError(cat("--seq-len is ", options.seq_len, ", ", options.model,
                          " has a context of ", config.context));
  }
  return config;
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
  models::check_graphs({.micro_batch = options.micro_batch,
                        .global_batch = options.global_batch,
                        .device = to_string(options.device.type),
                        .cuda_graph = options.cuda_graph,
                        .offload = options.offload,
                        .offload_activations = options.offload_activations},
                       context_->device(), *group_);
  model_ = models::make_language_model(model_config(options));
  host_tier_ = std::make_unique<offload::HostTier>(
      *context_, offload::HostTierOptions{.threads = options.threads});
  if (options.offload_activations) {
    activation_offload_ = std::make_unique<offload::ActivationOffload>(*host_tier_);
  }
  comm::DataParallelOptions parallel{.compute = options.dtype,
                                     .stage = options.zero,
                                     .overlap = options.overlap,
                                     .seed = options.seed};
  using models::OffloadKind;
  if (options.offload != OffloadKind::kNone) {
    parallel.offload = {.tier = host_tier_.get(),
                        .gradients = options.zero >= 2,
                        .parameters = options.offload == OffloadKind::kParameters};
  }
  parallel_ =
      std::make_unique<comm::DataParallel>(*model_, model_->blocks(), *context_, *group_, parallel);
  if (options.offload != OffloadKind::kNone) {
    optimizer_offload_ =
        std::make_unique<offload::OptimizerOffload>(*host_tier_, parallel_->shards());
  }
  optimizer_ = std::make_unique<optim::AdamW>(
      optimizer_offload_ != nullptr ? optimizer_offload_->shards() : parallel_->shards(),
      optim::AdamWOptions{});
  micro_batches_ = std::make_unique<models::MicroBatches>(
      *context_, *model_, *parallel_, activation_offload_.get(),
      models::MicroBatches::Options{
          .rows = options.micro_batch, .seq_len = options.seq_len, .graphs = options.cuda_graph});
}

TrainLoop::~TrainLoop() = default;

Batch TrainLoop::random_tokens(int64_t micro) const {
  const auto vocab = uint32_t(model_->config().vocab);
  const int64_t first = layout_.first_position(steps_, world_.rank(), micro);
  const PhiloxKey key = rng_key(options_.seed, RngDomain::kTest);
  Batch batch{.rows = options_.micro_batch,
              .seq_len = options_.seq_len,
              .first_position = first,
              .count = options_.micro_batch};
  for (int64_t row = 0; row < options_.micro_batch; ++row) {
    for (int64_t t = 0; t <= options_.seq_len; ++t) {
      const auto word = philox({uint32_t(t), uint32_t(first + row), 0, 0}, key)[0];
      const auto token = int32_t(uint64_t{word} * vocab >> 32);
      if (t < options_.seq_len) batch.inputs.push_back(token);
      if (t > 0) batch.targets.push_back(token);
    }
  }
  return batch;
}

template <typename Body>
void TrainLoop::in_phase(Phase phase, KernelRecorder& recorder, Body body) {
  context_->set_tracer(&tracers_[size_t(phase)]);
  recorder.set_phase(phase_name(phase));
  phase_seconds_[size_t(phase)] += time_once(body);
  context_->set_tracer(nullptr);
}

Tensor TrainLoop::micro_step(const Batch& batch, int64_t micro, KernelRecorder& recorder) {
  in_phase(Phase::kPrepare, recorder, [&] {
    context_->update_step([&](StepState& state) {
      state.grad_scale = 1 / float(tokens_per_step());
      state.sample = uint64_t(layout_.first_position(0, world_.rank(), micro));
    });
  });
  in_phase(Phase::kForward, recorder, [&] {
    const bool last = micro + 1 == layout_.micro_batches();
    micro_batches_->forward(batch, {.first = micro == 0, .last = last});
  });
  const auto live = context_->allocator().stats().current;
  saved_activation_bytes_ = std::max(saved_activation_bytes_, live[size_t(MemoryTag::kActivation)]);
  Tensor loss;
  in_phase(Phase::kBackward, recorder, [&] { loss = micro_batches_->backward(); });
  return loss;
}

StepTime TrainLoop::step(KernelRecorder& recorder) {
  std::vector<Batch> batches;  // made beforehand: the trainer has a thread for it
  for (int64_t micro = 0; micro < layout_.micro_batches(); ++micro) {
    batches.push_back(random_tokens(micro));
  }
  group_->barrier("bench step");

  StepTime result;
  const double exposed_before = parallel_->exposed_seconds();
  const Clock::time_point start = Clock::now();
  in_phase(Phase::kPrepare, recorder,
           [&] { optimizer_->prepare(*context_, steps_, kLearningRate); });
  std::vector<Tensor> losses;
  for (int64_t micro = 0; micro < layout_.micro_batches(); ++micro) {
    losses.push_back(micro_step(batches[size_t(micro)], micro, recorder));
  }
  micro_batches_->end_step();
  in_phase(Phase::kReduce, recorder, [&] { parallel_->finish_gradients(); });
  in_phase(Phase::kOptimizer, recorder, [&] {
    parallel_->clip_grad_norm(kClip);
    if (optimizer_offload_ != nullptr) {
      optimizer_offload_->step(*optimizer_);
    } else {
      optimizer_->step();
    }
    optimizer_->zero_grad();
  });
  in_phase(Phase::kLoss, recorder, [&] {
    std::vector<double> sums;
    for (const Tensor& loss : losses) sums.push_back(to_host<float>(loss).front());
    result.loss = float(comm::ordered_sum(*group_, sums) / double(tokens_per_step()));
  });
  result.seconds = seconds_since(start);
  result.exposed_comm_seconds = parallel_->exposed_seconds() - exposed_before;
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
  const auto current = [&](MemoryTag tag) { return stats.current[size_t(tag)]; };
  MemoryParts parts{.saved_activations = saved_activation_bytes_,
                    .workspace = current(MemoryTag::kWorkspace),
                    .other = current(MemoryTag::kComm) + current(MemoryTag::kData),
                    .peak_reserved = stats.peak_reserved,
                    .peak_allocated = stats.peak_allocated,
                    .host_peak = host_tier_->context().allocator().stats().peak_allocated};
  parts.parameters = current(MemoryTag::kParameter);
  const auto on_device = [&](const Tensor& x) {
    return x.defined() && &x.context() == context_.get() ? x.bytes() : 0;
  };
  for (const OptimShard& shard : parallel_->shards()) {
    parts.gradients += on_device(shard.grad);
    if (shard.compute.defined()) parts.optimizer += on_device(shard.master);
  }
  for (const optim::OptimState& state : optimizer_->states()) {
    parts.optimizer += on_device(state.value);
  }
  return parts;
}

}  // namespace shale::bench
