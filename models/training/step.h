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

// Model that runs as a pipeline, with pieces on its ranks. ShardGroups::stages describes the same
// stages for data parallelism.
struct StepPipeline {
  comm::ProcessGroup* group = nullptr;  // ranks of the pipeline, in order of their stages
  std::vector<nn::Piece> pieces = {};
  comm::StagePlan plan = {};
  Shape boundary = {};  // shape of a micro-batch's tensor between two pieces, on one mesh rank
  int slots = 2;        // see comm::PipelineOptions::slots
  // Runs some consecutive pieces, for one mesh rank, as MicroBatches::Loss does.
  std::function<Tensor(const comm::PieceRange& some, const Tensor& x, const DeviceBatch& batch)>
      run = {};
};

// Model that is trained, with its loss.
struct StepModel {
  Module& module;
  // Units of data parallelism; with a pipeline, its pieces determine them.
  std::vector<Module*> units;
  MicroBatches::Loss loss;
  std::optional<StepPipeline> pipeline = {};   // empty: every rank runs the whole model
  std::unique_ptr<StepTally> tally = nullptr;  // null: forward counts nothing
};

// What is kept in host memory, and what the host computes.
struct StepOffload {
  bool optimizer = false;    // masters and optimizer states; the host runs the optimizer step
  bool gradients = false;    // gradient shards, with ZeRO-2 and 3
  bool parameters = false;   // parameter shards, with ZeRO-3
  std::string folder = {};   // folder on a disk for everything but activations; empty: host memory
  bool activations = false;  // activations that forward saves for backward
  double share = 1;          // fraction of the parameters that is offloaded, rounded to whole units
  // Steps a shard as soon as its gradient is complete, overlapped with the rest of backward. Has no
  // effect with clipping or loss scaling, which need the complete gradient first.
  bool during_backward = true;
  // Runs the CPU's optimizer step on a separate thread. Empty: does so if the device is
  // asynchronous.
  std::optional<bool> background = {};
  // Replaces the thread of `background`; null: it does not.
  offload::InlineStepper* stepper = nullptr;
  offload::ActivationOptions activation = {};
};

// Options of all steps.
struct StepOptions {
  comm::DataParallelOptions parallel = {};  // its offload options are set from `offload`
  StepOffload offload = {};
  int64_t micro_batches = 1;  // maximum number of micro-batches per rank in a step
  float clip = 0;             // maximum gradient norm; 0: no clipping
  std::optional<optim::OutlierOptions> skip_outliers = {};
  std::optional<amp::GradScalerOptions> loss_scale = {};
  std::optional<comm::LocalStepsOptions> local_steps = {};
  bool graphs = false;  // capture forward and backward once and replay them
  bool skip_non_finite = false;  // count steps with a gradient that is not finite as skipped
};

// Makes an optimizer for these shards.
using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard> shards)>;

// Values of a single step.
struct StepInput {
  int64_t step = 0;            // index of the step, from 0
  float lr = 0;                // learning rate
  double weight = 1;           // divisor of the sum of the losses of all ranks
  int64_t first_position = 0;  // global index of the step's first sample
  int64_t micro_batches = 0;   // number of micro-batches per rank; 0: that of StepOptions
  // Returns the rank's next micro-batch, which stays valid until the next call.
  std::function<const Batch&()> next_batch = {};
  // Called before every micro-batch except the first. True, which must be returned on all ranks,
  // drops the step. Pipelines do not call it, because their ranks are at different micro-batches.
  // Empty: no step is dropped.
  std::function<bool(int64_t micro)> drops = {};
};

// Result of a step on this rank.
struct StepOutcome {
  int64_t step = 0;
  std::chrono::steady_clock::time_point started = {};  // time at which the launch of the step began
  std::vector<double> losses;                          // losses of this rank's micro-batches
  StepState state;             // with the gradient norm, and the loss scale of the next step
  double exposed_s = 0;        // time that the step waited for communication
  std::vector<int32_t> tally;  // sum of StepTally over all ranks; empty: no tally
  // True if the step updated nothing and training may continue. Reasons: the gradient overflowed,
  // which loss scaling expects occasionally; its norm was an outlier (StepOptions::skip_outliers);
  // or it was not finite (StepOptions::skip_non_finite).
  bool was_skipped = false;
  bool was_outlier = false;
  // Skipped because of a gradient that is not finite for other reasons than loss scaling.
  bool was_non_finite = false;
};

// History of the steps that a resumed run needs in addition to its tensors.
struct StepHistory {
  int64_t skipped_steps = 0;  // number of all skipped steps
  // Number of steps skipped for an outlier norm; included in skipped_steps.
  int64_t outlier_steps = 0;
  std::optional<LossScale> loss_scale = {};  // empty: no loss scaling
  // Recent gradient norms; empty: outliers are not skipped.
  std::optional<optim::NormWindow> norms = {};
  // Optimizer updates of the run whose optimizer states this run took over.
  int64_t earlier_updates = 0;
};

// Phases of a step, in order; forward and backward occur once per micro-batch.
enum class StepPhase : uint8_t { kPrepare, kForward, kBackward, kReduce, kUpdate };

std::string_view phase_name(StepPhase phase);  // Returns the name of a phase, such as "forward".

// Observer of training steps. Methods are called on the thread that calls TrainStep.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Called before and after the work of a phase is launched; kPrepare precedes every forward.
  virtual void begins(StepPhase) {}
  virtual void ends(StepPhase) {}
  // Called on a pipeline rank before each forward or backward, which `Action` describes.
  virtual void acts(const comm::Action&) {}
  // Called when the results of a step are available. On a synchronous device, that is before run()
  // returns. On an asynchronous device, it is between the launches of the next step's first forward
  // and first backward, or in finish(). Must not wait for other ranks, because they may wait for
  // messages that this rank sends in the next step.
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
  // All references must outlive this. Allocates and initializes the parameters, whose memory exists
  // as long as this object. Throws ConfigError for incompatible options. Collective.
  TrainStep(Context& context, const comm::ShardGroups& groups, StepModel model,
            const StepOptions& options, const MakeOptimizer& make_optimizer,
            StepObserver* observer = nullptr);
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Launches a step. On an asynchronous device the host is at most one step ahead. Returns false if
  // the step was dropped. Then parameters and optimizer states are those of the previous step.
  // Gradients are incomplete, so run() must not be called again.
  bool run(const StepInput& input);
  // Returns the loss of a micro-batch without backward. In a pipeline, ranks without losses get an
  // undefined tensor. Collective over the ranks of a pipeline.
  Tensor loss(const DeviceBatch& batch);
  // Waits until all launched steps are complete and their outcomes are reported.
  void finish();
  // Like finish(), but also waits for an optimizer in host memory. Parameters and states are then
  // those after the last step.
  void finish_update();

  // Frees the memory of captured graphs. run() must not be called afterwards.
  void drop_graphs();

  // resume() continues from a history and ignores what it does not need, such as a loss scale
  // without loss scaling. history() waits for the device. Throws DataError for norms of a different
  // window.
  void resume(const StepHistory& history);
  StepHistory history() const;
  // Number of skipped steps among those with reported outcomes.
  int64_t skipped_steps() const { return skipped_steps_; }
  int64_t outlier_steps() const { return outlier_steps_; }  // included in skipped_steps()
  bool scales_loss() const { return scaler_.has_value(); }
  bool skips_outliers() const { return outliers_.has_value(); }

  // Makes the parameters of all replicas equal. Call it after the last step of a run with local
  // steps, the step number `done`.
  void finish_local_steps(int64_t done);
  // Calls `use` while the parameters are those common to all replicas of local steps
  // (comm::LocalSteps), and restores them afterwards. Without local steps it just calls `use`.
  // Collective.
  void with_anchors(const std::function<void()>& use);

  // Starts a moving average of the parameters at their current values (Optimizer::keep_average()).
  void keep_average(double decay) { optimizer_->keep_average(decay); }
  // Calls `use` while the parameters have the values of their average. Afterwards parameters and
  // average have their previous bits. Collective.
  void with_average(const std::function<void()>& use);

  comm::DataParallel& parallel() { return *parallel_; }
  const comm::DataParallel& parallel() const { return *parallel_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  // Returns the context of offloaded memory; null: nothing is offloaded.
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
  // Returns the losses of the micro-batches; empty if the step is dropped.
  std::vector<Tensor> run_micro_batches(const StepInput& input);
  void forward(const StepInput& input, MicroBatches::Place place);
  void set_updates(int64_t step);
  void update(int64_t step);
  void sum_tally();
  bool steps_during_backward() const;

  // On destruction, detaches the parameters from their memory and frees it. The parameters may
  // outlive the context, and a group that owns the memory may be destroyed before the context.
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
  std::optional<offload::OptimizerOffload> offload_;  // must be destroyed before optimizer_
  std::optional<amp::GradScaler> scaler_;
  std::optional<optim::OutlierSkip> outliers_;
  std::optional<MicroBatches> micro_batches_;
  std::unique_ptr<PipelineStep> pipeline_;  // used instead of micro_batches_; null: no pipeline
  std::unique_ptr<StepTally> tally_;  // null: no counters
  StepResults results_;
  std::optional<Queued> queued_;  // launched step whose outcome has not been reported
  int64_t skipped_steps_ = 0;
  int64_t outlier_steps_ = 0;
  int64_t overflows_ = 0;        // part of skipped_steps_ that the loss scaler does not count
  int64_t earlier_updates_ = 0;  // see StepHistory
};

}  // namespace shale::models
