#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/data/local_steps.h"
#include "shale/comm/parallel/pipeline/stage_plan.h"
#include "shale/models/training/micro_batches.h"
#include "shale/models/training/step_results.h"
#include "shale/models/training/step_tally.h"
#include "shale/runtime/amp/grad_scaler.h"
#include "shale/runtime/offload/activations.h"
#include "shale/runtime/offload/optimizer_offload.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/outliers.h"

namespace shale::models {

// Model whose pieces run on the ranks of a pipeline. ShardGroups::stages describes the same stages
// for data parallelism.
struct StepPipeline {
  comm::ProcessGroup* group = nullptr;  // ranks of the pipeline, in order of their stages
  std::vector<nn::Piece> pieces = {};
  comm::StagePlan plan = {};
  Shape boundary = {};  // shape of a micro-batch's tensor between two pieces, on one mesh rank
  int slots = 2;        // as comm::PipelineOptions::slots
  // Runs some consecutive pieces, for one mesh rank, as MicroBatches::Loss does.
  std::function<Tensor(const comm::PieceRange& some, const Tensor& x, const DeviceBatch& batch)>
      run = {};
};

// Model that is trained, with its loss.
struct StepModel {
  Module& module;
  std::vector<Module*> units;  // units of data parallelism; with a pipeline derived from its pieces
  MicroBatches::Loss loss;
  std::optional<StepPipeline> pipeline = {};   // empty: every rank runs the whole model
  std::unique_ptr<StepTally> tally = nullptr;  // null: forward counts nothing
};

// State that is kept in host memory, and computations that run there.
struct StepOffload {
  bool optimizer = false;    // masters and optimizer states; the host runs the optimizer step
  bool gradients = false;    // gradient shards, with ZeRO-2 and 3
  bool parameters = false;   // parameter shards, with ZeRO-3
  std::string folder = {};   // folder on a disk for everything but activations; empty: host memory
  bool activations = false;  // activations that forward saves for backward
  double share = 1;          // share of the parameters that is offloaded, in whole units
  // Steps a shard as soon as its gradient is complete, overlapped with the rest of backward.
  // Applies to steps without clipping and loss scaling, which need the complete gradient first.
  bool during_backward = true;
  // Runs the CPU's optimizer step on a separate thread. Empty: only if the device is asynchronous.
  std::optional<bool> background = {};
  offload::InlineStepper* stepper = nullptr;  // replaces the thread of `background`; null: none
  offload::ActivationOptions activation = {};
};

// Options of all steps.
struct StepOptions {
  comm::DataParallelOptions parallel = {};  // `offload` decides what lies in host memory
  StepOffload offload = {};
  int64_t micro_batches = 1;  // maximum number per rank in a step
  float clip = 0;             // maximum gradient norm; 0: no clipping
  std::optional<optim::OutlierOptions> skip_outliers = {};
  std::optional<amp::GradScalerOptions> loss_scale = {};
  std::optional<comm::LocalStepsOptions> local_steps = {};
  bool graphs = false;  // capture forward and backward once and replay them
  bool skip_non_finite = false;  // count steps with a gradient that is not finite as skipped
};

// Makes the optimizer of these shards.
using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard> shards)>;

// Values of a single step.
struct StepInput {
  int64_t step = 0;            // index of the step, from 0
  float lr = 0;                // learning rate
  double weight = 1;           // divisor of the loss, which is the sum over all ranks
  int64_t first_position = 0;  // global index of the step's first sample
  int64_t micro_batches = 0;   // number per rank; 0: that of StepOptions
  // Returns the rank's next micro-batch, which stays valid until the next call.
  std::function<const Batch&()> next_batch = {};
  // Asked before every micro-batch but the first; true, on all ranks, drops the step. Not asked by
  // pipelines, whose ranks are at different micro-batches. Empty: nothing drops steps.
  std::function<bool(int64_t micro)> drops = {};
};

// Result of a step on this rank.
struct StepOutcome {
  int64_t step = 0;
  std::chrono::steady_clock::time_point started = {};  // time when its launch began
  std::vector<double> losses;                          // losses of this rank's micro-batches
  StepState state;             // includes the gradient norm, and the loss scale of the next step
  double exposed_s = 0;        // time that the step waited for communication
  std::vector<int32_t> tally;  // sum of StepTally over all ranks; empty: no tally
  // True if nothing was updated and training may go on: the gradient overflowed, which loss scaling
  // expects occasionally, its norm was an outlier (StepOptions::skip_outliers), or it was not
  // finite (StepOptions::skip_non_finite).
  bool was_skipped = false;
  bool was_outlier = false;
  bool was_non_finite = false;  // skipped for a gradient that loss scaling does not explain
};

// History that a resumed run needs, besides its tensors.
struct StepHistory {
  int64_t skipped_steps = 0;                    // total
  int64_t outlier_steps = 0;  // steps skipped for an outlier norm, included in skipped_steps
  std::optional<LossScale> loss_scale = {};     // loss scale, in runs with loss scaling
  std::optional<optim::NormWindow> norms = {};  // recent gradient norms, in runs that skip outliers
  int64_t earlier_updates = 0;  // updates of the optimizer in the run whose states were taken over
};

// Phases of a step, in order; forward and backward occur once per micro-batch.
enum class StepPhase : uint8_t { kPrepare, kForward, kBackward, kReduce, kUpdate };

std::string_view phase_name(StepPhase phase);  // "forward"

// Observer of training steps. Methods are called on the thread that calls TrainStep.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Called before and after the work of a phase is launched; kPrepare precedes every forward.
  virtual void begins(StepPhase) {}
  virtual void ends(StepPhase) {}
  // Called on a pipeline rank before each forward or backward, which `Action` describes.
  virtual void acts(const comm::Action&) {}
  // Called when the results of a step are available. If the device is synchronous: before run()
  // returns. Otherwise: after the launch of the next step's first forward and before that of its
  // backward, or in finish(). Must not wait for other ranks, which may wait for messages that this
  // rank sends in the next step.
  virtual void done(const StepOutcome&) {}
};

class PipelineStep;

// Training steps of a model on the ranks of a group. This class alone defines the order of forward,
// backward, collectives, clipping, optimizer and loss scaling. All ranks call the same methods in
// the same order.
//
//   TrainStep step(context, {.shard = &group}, {model, model.blocks(), loss}, {.clip = 1},
//                  [](std::vector<OptimShard> shards) {
//                    return std::make_unique<optim::AdamW>(std::move(shards),
//                    optim::AdamWOptions{});
//                  });
//   for (...) step.run({.step = i, .lr = lr, .weight = samples, .next_batch = batches});
//   step.finish();
class TrainStep {
 public:
  // All references must outlive this. Allocates the parameters, which keep their memory as long as
  // this exists, and initializes them. Throws ConfigError for incompatible options. Collective.
  TrainStep(Context& context, const comm::ShardGroups& groups, StepModel model,
            const StepOptions& options, const MakeOptimizer& make_optimizer,
            StepObserver* observer = nullptr);
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Launches a step. On an asynchronous device the host is at most one step ahead. Returns false if
  // the step was dropped: parameters and optimizer states are those of the step before, and
  // gradients are incomplete, so that run() must not be called again.
  bool run(const StepInput& input);
  // Returns the loss of a micro-batch, forward only; in a pipeline on the ranks with losses,
  // elsewhere an undefined tensor. Collective over the ranks of a pipeline.
  Tensor loss(const DeviceBatch& batch);
  // Waits until all launched steps are complete and their outcomes reported.
  void finish();
  // Also waits for an optimizer in host memory: parameters and states are then those after the last
  // step.
  void finish_update();

  // Frees the memory of captured graphs. run() must not be called afterwards.
  void drop_graphs();

  // Continues from a history. Unused parts (a loss scale without loss scaling) are ignored.
  // history() waits for the device. Throws DataError for norms of a different window.
  void resume(const StepHistory& history);
  StepHistory history() const;
  int64_t skipped_steps() const { return skipped_steps_; }  // of the steps with reported outcomes
  int64_t outlier_steps() const { return outlier_steps_; }  // included in skipped_steps()
  bool scales_loss() const { return scaler_.has_value(); }
  bool skips_outliers() const { return outliers_.has_value(); }

  // Call after `done` steps, the last of a run with local steps: makes the replicas' parameters
  // equal.
  void finish_local_steps(int64_t done);
  // Calls `use` while the parameters are those common to all replicas of local steps
  // (comm::LocalSteps), and restores them afterwards. Without local steps it just calls `use`.
  // Collective.
  void with_anchors(const std::function<void()>& use);

  // Starts a moving average of the parameters at their current values (Optimizer::keep_average()).
  void keep_average(double decay) { optimizer_->keep_average(decay); }
  // Calls `use` while the parameters are their average. Afterwards both have their previous bits.
  // Collective.
  void with_average(const std::function<void()>& use);

  comm::DataParallel& parallel() { return *parallel_; }
  const comm::DataParallel& parallel() const { return *parallel_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  // Context of offloaded memory; null: nothing is offloaded.
  Context* host_context() { return tier_ ? &tier_->context() : nullptr; }

 private:
  struct Queued {
    int64_t step = 0;
    std::chrono::steady_clock::time_point started;
    double exposed_s = 0;
  };

  template <typename Body>
  void phase(StepPhase phase, const Body& body);
  void swap_average();
  comm::ReplicaGradients prepare_replicas(int64_t step);
  StepInput own_input(StepInput all) const;
  // Returns the losses of the micro-batches; none if the step is dropped.
  std::vector<Tensor> run_micro_batches(const StepInput& input);
  void forward(const StepInput& input, MicroBatches::Place place);
  void set_updates(int64_t step);
  void update(int64_t step);
  void sum_tally();
  bool steps_during_backward() const;

  // Detaches the parameters, which may outlive the context, from their memory, and frees it,
  // because a group that owns it may be destroyed before the context.
  struct Unbind {
    Context& context;
    Module& module;
    ~Unbind();
  };

  Context& context_;
  StepOptions options_;
  StepObserver* observer_;
  Unbind unbind_;
  const MicroBatches::Loss loss_;
  std::optional<offload::HostTier> tier_;
  std::optional<offload::ActivationOffload> activations_;
  std::optional<comm::DataParallel> parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<offload::OptimizerOffload> offload_;  // destroyed before optimizer_
  std::optional<amp::GradScaler> scaler_;
  std::optional<optim::OutlierSkip> outliers_;
  std::optional<MicroBatches> micro_batches_;
  std::unique_ptr<PipelineStep> pipeline_;  // replaces micro_batches_; null: no pipeline
  std::unique_ptr<StepTally> tally_;  // null: no counters
  StepResults results_;
  std::optional<Queued> queued_;  // launched step whose outcome has not been reported
  int64_t skipped_steps_ = 0;
  int64_t outlier_steps_ = 0;
  int64_t overflows_ = 0;        // part of skipped_steps_ that the loss scaler does not count
  int64_t earlier_updates_ = 0;  // see StepHistory
};

}  // namespace shale::models
