#include "shale/bench/support/train_loop.h"

#include <algorithm>

#include "shale/base/cpu_affinity.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::bench {
namespace {

constexpr float kLearningRate = 1e-4f;
constexpr float kClip = 1;

bool is_dit_preset(const std::string& name) {
  return std::ranges::any_of(models::dit_presets(),
                             [&](const models::DitPreset& preset) { return preset.name == name; });
}

// Makes the training task. Throws ConfigError if options for image models are set for a language
// model, or the reverse.
TrainWork make_work(const TrainOptions& options) {
  if (!is_image_preset(options.model)) {
    return language_work(options.model, language_config(options),
                         {.loss_chunk_rows = options.loss_chunk}, options.seq_len, options.seed,
                         options.lora_rank);
  }
  for (const auto& [flag, value] :
       {std::pair("--layers", options.layers), std::pair("--loss-chunk", options.loss_chunk),
        std::pair("--lora-rank", options.lora_rank)}) {
    if (value == 0) continue;
    throw ConfigError(cat(flag, " needs a language model, found the image model ", options.model));
  }
  if (is_dit_preset(options.model)) {
    models::DitConfig config = models::find_dit_preset(options.model).model;
    config.pixels = options.pixels;
    return dit_work(options.model, config, options.seed);
  }
  models::ImageModelConfig config = models::find_image_preset(options.model).model;
  config.pixels = options.pixels;
  return image_work(options.model, config, options.seed);
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

bool is_image_preset(const std::string& name) {
  return is_dit_preset(name) ||
         std::ranges::any_of(models::image_presets(), [&](const models::ImagePreset& preset) {
           return preset.name == name;
         });
}

models::LanguageModelConfig language_config(const TrainOptions& options) {
  models::LanguageModelConfig config = models::preset(options.model, options.seq_len);
  if (options.layers > 0) config.layers = options.layers;
  if (options.seq_len > config.context) {
    throw ConfigError(cat("--seq-len is ", options.seq_len, ", ", options.model,
                          " has a context of ", config.context));
  }
  return config;
}

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
  if (options.pixels == 0) options.pixels = is_dit_preset(options.model) ? 32 : 224;
  layout_ = {.global_batch = options.global_batch,
             .micro_batch = options.micro_batch,
             .ranks = world.size()};
  layout_.validate();
  // Do this before any thread is started, because threads inherit the CPU mask.
  options.threads = resolve_threads(options.threads, world.local_size());
  options_ = options;
  context_ = std::make_unique<Context>(ContextOptions{.device = options.device,
                                                      .threads = options.threads,
                                                      .dependent_launch = options.dependent_launch,
                                                      .seed = options.seed});
  group_ = world.group({}, context_->backend());
  const models::RunConfig run = run_config(options);
  models::check_graphs(run, context_->device(), *group_);
  work_ = make_work(options);
  for (Module* block : work_.units) block->set_recompute(options.recompute);
  step_ = std::make_unique<models::TrainStep>(
      *context_, comm::ShardGroups{.shard = group_.get()},
      models::StepModel{*work_.model, work_.units, work_.loss},
      models::step_options(run, options.dtype, layout_.micro_batches(0)),
      [&](std::vector<OptimShard> shards) {
        return models::make_optimizer(run, work_.units, std::move(shards));
      },
      static_cast<models::StepObserver*>(this));
}

TrainLoop::~TrainLoop() = default;

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
  std::vector<Batch> batches;  // made in advance, because the trainer makes them on a thread
  for (int64_t micro = 0; micro < layout_.micro_batches(steps_); ++micro) {
    batches.push_back(
        work_.batch(layout_.first_position(steps_, world_.rank(), micro), options_.micro_batch));
  }
  group_->barrier("bench step");

  const auto items = double(items_per_step());
  StepTime result;
  const Clock::time_point start = Clock::now();
  step_->run(
      {.step = steps_,
       .lr = kLearningRate,
       .weight = items,
       .first_position = layout_.begin(steps_),
       .next_batch = [&, next = size_t{0}]() mutable -> const Batch& { return batches[next++]; }});
  begin(Phase::kLoss);
  step_->finish();
  result.loss = float(comm::ordered_sum(*group_, outcome_.losses) / items);
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
  for (const Parameter* parameter : work_.model->parameters()) count += parameter->numel();
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
