#include "shale/models/training/step.h"

#include <array>
#include <bit>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/loss_scale.h"
#include "shale/models/training/pipeline_step.h"

namespace shale::models {
namespace {

comm::DataParallelOptions parallel_options(const StepOptions& options, offload::HostTier* tier) {
  comm::DataParallelOptions parallel = options.parallel;
  if (options.offload.optimizer) {
    parallel.offload = {.tier = tier,
                        .gradients = options.offload.gradients,
                        .parameters = options.offload.parameters};
    parallel.offload_share = options.offload.share;
  }
  return parallel;
}

}  // namespace

TrainStep::TrainStep(Context& context, const comm::ShardGroups& groups, StepModel model,
                     const StepOptions& options, const MakeOptimizer& make_optimizer,
                     StepObserver* observer)
    : context_(context),
      options_(options),
      observer_(observer),
      unbind_{context, model.module},
      loss_(model.loss),
      tally_(std::move(model.tally)),
      results_(context, options.micro_batches, tally_ ? tally_->counts().numel() : 0) {
  const auto micro_batches = static_cast<uint64_t>(options_.micro_batches);
  if (options_.parallel.reproducible && !std::has_single_bit(micro_batches)) {
    throw ConfigError(
        cat("step: ", micro_batches,
            " micro-batches per rank, expected a power of two for reproducible sums"));
  }
  if (options_.graphs && options_.parallel.gather_fp8) {
    throw ConfigError("step: CUDA graphs are incompatible with gather_fp8; use one of the two");
  }
  if (options_.graphs && groups.hosted != nullptr) {
    throw ConfigError(
        "step: CUDA graphs need one mesh rank per process; start as many processes as mesh ranks, "
        "or do not use graphs");
  }
  const StepOffload& offload = options_.offload;
  if (offload.optimizer || offload.activations || options_.local_steps) {
    tier_.emplace(context_, offload::HostTierOptions{.threads = context_.exec().threads,
                                                     .folder = offload.folder});
  }
  if (offload.activations) activations_.emplace(*tier_, offload.activation);
  const comm::DataParallelOptions parallel = parallel_options(options_, tier_ ? &*tier_ : nullptr);
  if (model.pipeline) {
    const StepPipeline& of = *model.pipeline;
    parallel_.emplace(stage_units(model.module, of.pieces, of.plan, of.group->rank()), context_,
                      groups, parallel);
  } else {
    parallel_.emplace(model.module, std::move(model.units), context_, groups, parallel);
  }
  if (options_.local_steps) parallel_->keep_local_steps(*tier_, *options_.local_steps);
  std::vector<OptimShard> shards = parallel_->shards();
  if (offload.optimizer) {
    const bool runs_later = context_.exec().stream != nullptr;
    if (offload.stepper != nullptr) {
      offload_.emplace(*tier_, std::move(shards), *offload.stepper);
    } else {
      offload_.emplace(*tier_, std::move(shards), offload.background.value_or(runs_later));
    }
    shards = offload_->shards();
  }
  optimizer_ = make_optimizer(std::move(shards));
  context_.autograd().numbers_samples = true;
  if (options_.loss_scale) scaler_.emplace(context_, *options_.loss_scale);
  if (options_.skip_outliers) outliers_.emplace(context_, *options_.skip_outliers);
  if (model.pipeline) {
    pipeline_ = std::make_unique<PipelineStep>(context_, std::move(*model.pipeline), *parallel_,
                                               parallel.compute, observer_);
  } else {
    micro_batches_.emplace(context_, std::move(model.loss), *parallel_,
                           activations_ ? &*activations_ : nullptr, options_.graphs);
  }
}

TrainStep::~TrainStep() = default;

void TrainStep::drop_graphs() {
  micro_batches_.reset();
}

Tensor TrainStep::loss(const DeviceBatch& batch) {
  if (pipeline_ != nullptr) return pipeline_->loss(batch);
  Tensor sum;  // equal on all ranks of the mesh
  parallel_->run([&](int rank) {
    const Tensor loss = loss_(batch);
    if (rank == 0) sum = loss;
  });
  return sum;
}

TrainStep::Unbind::~Unbind() {
  for (Parameter* parameter : module.parameters()) {
    parameter->unbind();
    for (Parameter* leaf : parameter->peers) leaf->unbind();
  }
  try {
    context.allocator().release_cached();
  } catch (const std::exception& error) {  // the device is lost, so nothing uses the memory
    log_warning("step: ", error.what());
  }
}

std::string_view phase_name(StepPhase phase) {
  constexpr std::array<std::string_view, 5> kNames = {"prepare", "forward", "backward", "reduce",
                                                      "update"};
  return kNames.at(static_cast<size_t>(phase));
}

template <typename Body>
void TrainStep::phase(StepPhase phase, const Body& body) {
  if (observer_ != nullptr) observer_->begins(phase);
  body();
  if (observer_ != nullptr) observer_->ends(phase);
}

// Begins a step of the replicas. Returns whose samples its gradients cover: those of all replicas,
// or the replica's own.
comm::ReplicaGradients TrainStep::prepare_replicas(int64_t step) {
  using enum comm::ReplicaGradients;
  comm::LocalSteps* const local = parallel_->local_steps();
  if (local != nullptr) {
    local->begin_step(step);
    if (local->is_local(step)) return kOwn;
  }
  return optimizer_->needs_replica_sum() ? kSum : kShare;
}

// Returns the input for this replica. With local steps, it divides the loss by its own number of
// samples.
StepInput TrainStep::own_input(StepInput input) const {
  const comm::ShardingContext& shared = parallel_->shared();
  if (shared.replica_gradients == comm::ReplicaGradients::kOwn) {
    input.weight /= shared.groups.replicate->size();
  }
  return input;
}

bool TrainStep::run(const StepInput& all) {
  const auto started = std::chrono::steady_clock::now();
  const double exposed_before = parallel_->exposed_seconds();
  phase(StepPhase::kPrepare, [&] {
    optimizer_->prepare(context_, all.step, all.lr);
    parallel_->set_replica_gradients(prepare_replicas(all.step));
  });
  const StepInput input = own_input(all);
  const std::vector<Tensor> losses =
      pipeline_ != nullptr ? pipeline_->run(input, [this] { finish(); }) : run_micro_batches(input);
  if (losses.empty()) return false;
  phase(StepPhase::kReduce, [&] { parallel_->finish_gradients(); });
  phase(StepPhase::kUpdate, [&] { update(input.step); });
  if (tally_) sum_tally();
  results_.queue(losses, tally_ ? tally_->counts() : Tensor());
  if (tally_) kernels::fill(context_.exec(), {.y = tally_->counts()});
  queued_ = Queued{input.step, started, parallel_->exposed_seconds() - exposed_before};
  const bool ran_already = context_.exec().stream == nullptr;
  if (ran_already) finish();
  return true;
}

std::vector<Tensor> TrainStep::run_micro_batches(const StepInput& input) {
  std::vector<Tensor> losses;
  const int64_t count = input.micro_batches > 0 ? input.micro_batches : options_.micro_batches;
  for (int64_t micro = 0; micro < count; ++micro) {
    const bool last = micro + 1 == count;
    if (micro > 0 && input.drops && input.drops(micro)) return {};
    forward(input, {.first = micro == 0, .last = last});
    finish();  // completes the previous step before backward overwrites its gradients
    if (last && steps_during_backward()) {
      set_updates(input.step);
      offload_->step_during_backward(*optimizer_);
    }
    phase(StepPhase::kBackward, [&] { losses.push_back(micro_batches_->backward()); });
  }
  micro_batches_->end_step();
  return losses;
}

void TrainStep::forward(const StepInput& input, MicroBatches::Place place) {
  const Batch& batch = input.next_batch();
  phase(StepPhase::kPrepare, [&] {
    context_.update_step([&](StepState& state) {
      state.grad_scale = 1 / static_cast<float>(input.weight);
      state.sample = static_cast<uint64_t>(batch.first_position - input.first_position);
    });
  });
  phase(StepPhase::kForward, [&] { micro_batches_->forward(batch, place); });
}

// Sums the tally over ranks. The order of ranks does not matter, because counts are integers.
void TrainStep::sum_tally() {
  const Tensor& all = tally_->counts();
  const Tensor counts = all.alias({all.numel()}, {1});
  const comm::ShardGroups& groups = parallel_->shared().groups;
  comm::ProcessGroup* const stages = groups.stages != nullptr ? groups.stages->group : nullptr;
  for (comm::ProcessGroup* group : {groups.shard, groups.tensor, groups.replicate, stages}) {
    if (group != nullptr) group->all_reduce_sum(counts, {.tag = "tally of the step"});
  }
  tally_->summed();
}

// Returns true if no part of the update needs the complete gradient.
bool TrainStep::steps_during_backward() const {
  return offload_ && options_.offload.during_backward && options_.clip == 0 && !scaler_ &&
         !outliers_ && !options_.skip_non_finite && options_.parallel.overlap &&
         !optimizer_->needs_all_gradients();
}

// Tells the optimizer how many updates it has done, if that differs from the steps: bias
// corrections count updates.
void TrainStep::set_updates(int64_t step) {
  const int64_t other = earlier_updates_ - skipped_steps_;
  if (other != 0) optimizer_->set_updates(step + other);
}

void TrainStep::update(int64_t step) {
  parallel_->clip_grad_norm(options_.clip, outliers_ ? &*outliers_ : nullptr);
  set_updates(step);
  if (offload_) {
    offload_->step(*optimizer_);
  } else {
    optimizer_->step();
  }
  optimizer_->zero_grad();
  if (scaler_) scaler_->update();
  if (parallel_->local_steps() != nullptr) parallel_->local_steps()->end_step(step + 1);
}

void TrainStep::finish() {
  if (!queued_) return;
  const Queued queued = *std::exchange(queued_, std::nullopt);
  results_.wait();
  const StepState state = results_.state();
  const bool was_outlier = state.non_finite == kernels::kOutlierNorm;
  const bool overflowed = scaler_ && state.non_finite != 0 && !was_outlier &&
                          state.non_finite != kernels::kOverflowAtMinScale;
  const bool was_non_finite =
      options_.skip_non_finite && state.non_finite != 0 && !was_outlier && !overflowed;
  if (was_outlier) ++outlier_steps_;
  if (was_non_finite && !scaler_) ++overflows_;
  skipped_steps_ =
      outlier_steps_ + (scaler_ ? int64_t{state.loss_scale.skipped_steps} : overflows_);
  if (observer_ == nullptr) return;
  observer_->done({.step = queued.step,
                   .started = queued.started,
                   .losses = results_.losses(),
                   .state = state,
                   .exposed_s = queued.exposed_s,
                   .tally = results_.tally(),
                   .was_skipped = was_outlier || overflowed || was_non_finite,
                   .was_outlier = was_outlier,
                   .was_non_finite = was_non_finite});
}

void TrainStep::finish_update() {
  finish();
  if (offload_) offload_->finish();
  if (parallel_->local_steps() != nullptr) parallel_->local_steps()->settle();
}

void TrainStep::finish_local_steps(int64_t done) {
  if (parallel_->local_steps() != nullptr) parallel_->local_steps()->finish(done);
}

void TrainStep::with_anchors(const std::function<void()>& use) {
  comm::LocalSteps* const local = parallel_->local_steps();
  if (local == nullptr) return use();
  finish_update();
  parallel_->finish_gathers();  // pending gathers read the tensors that are swapped
  local->with_anchors(use);
}

void TrainStep::resume(const StepHistory& history) {
  skipped_steps_ = history.skipped_steps;
  outlier_steps_ = history.outlier_steps;
  earlier_updates_ = history.earlier_updates;
  overflows_ = skipped_steps_ - outlier_steps_;
  if (outliers_ && history.norms) outliers_->load(*history.norms);
  if (!scaler_) return;
  LossScale now = history.loss_scale.value_or(scaler_->state());
  now.skipped_steps = static_cast<uint32_t>(overflows_);
  scaler_->load(now);
}

StepHistory TrainStep::history() const {
  StepHistory history{.skipped_steps = skipped_steps_,
                      .outlier_steps = outlier_steps_,
                      .earlier_updates = earlier_updates_};
  if (scaler_) history.loss_scale = scaler_->state();
  if (outliers_) history.norms = outliers_->state();
  return history;
}

// ---- Moving average of the parameters ----

void TrainStep::swap_average() {
  parallel_->finish_gathers();  // pending gathers read the tensors that are swapped
  optimizer_->swap_average();
  parallel_->masters_changed();
}

void TrainStep::with_average(const std::function<void()>& use) {
  if (!optimizer_->keeps_average()) {
    throw InternalError("step: parameters have no average; call keep_average() first");
  }
  finish_update();
  swap_average();
  use();
  swap_average();
}

}  // namespace shale::models
