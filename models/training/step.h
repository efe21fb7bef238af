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

// A model whose pieces are on several ranks. ShardGroups::stages says the same to data parallelism.
struct StepPipeline {
  comm::ProcessGroup* group = nullptr;  // the ranks of the pipeline, in order
  std::vector<nn::Piece> pieces = {};
  comm::StagePlan plan = {};
  Shape boundary = {};  // of a micro-batch between two pieces, on one mesh rank
  int slots = 2;        // see comm::PipelineOptions
  // Runs some of the pieces, which follow each other: of a mesh rank, as MicroBatches::Loss.
  std::function<Tensor(const comm::PieceRange& some, const Tensor& x, const DeviceBatch& batch)>
      run = {};
};

// What is trained.
struct StepModel {
  Module& module;
  std::vector<Module*> units;  // of data parallelism; in a pipeline its pieces say which
  MicroBatches::Loss loss;
  std::optional<StepPipeline> pipeline = {};  // none: every rank runs the whole model
  std::unique_ptr<StepTally> tally = nullptr;  // null: forward counts nothing
};

// What lies in host memory, and is done there.
struct StepOffload {
  bool optimizer = false;    // masters and optimizer states, and their step
  bool gradients = false;    // from stage 2 on
  bool parameters = false;   // in stage 3
  std::string folder = {};   // of a disk, where all but activations lies; empty: in host memory
  bool activations = false;  // that forward saves for backward
  double share = 1;          // of the parameters that this is for, in whole units
  // Whether a shard is stepped as soon as its gradient is complete, beside the rest of backward:
  // in steps without clipping and loss scaling, which look at the gradient as a whole first.
  bool during_backward = true;
  // Whether the CPU steps on a thread of its own; without a value, where the device runs beside it.
  std::optional<bool> background = {};
  offload::InlineStepper* stepper = nullptr;  // that steps in place of that thread; null: none does
  offload::ActivationOptions activation = {};
};

// How a step is done, the same for all.
struct StepOptions {
  comm::DataParallelOptions parallel = {};  // where `offload` says what lies in host memory
  StepOffload offload = {};
  int64_t micro_batches = 1;  // of a rank, in the steps that have most
  float clip = 0;             // largest norm of the gradient; 0: any
  std::optional<optim::OutlierOptions> skip_outliers = {};
  std::optional<amp::GradScalerOptions> loss_scale = {};
  std::optional<comm::LocalStepsOptions> local_steps = {};
  bool graphs = false;  // forward and backward are captured once and replayed
};

// Makes the optimizer of these shards.
using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard> shards)>;

// One step's own values.
struct StepInput {
  int64_t step = 0;            // counts from 0
  float lr = 0;                // of the optimizer
  double weight = 1;           // of all ranks' losses: what is minimised is their sum over this
  int64_t first_position = 0;  // of the step's first sample among those of all ranks
  int64_t micro_batches = 0;   // of a rank; 0: those of the options
  // The rank's micro-batches, one after the other; each stays until the next call.
  std::function<const Batch&()> next_batch = {};
};

// What a step has come to on this rank.
struct StepOutcome {
  int64_t step = 0;
  std::chrono::steady_clock::time_point started = {};  // when it began to be queued
  std::vector<double> losses;                          // of the rank's micro-batches
  StepState state;       // with the gradient's norm, and the loss scale of the next step
  double exposed_s = 0;  // that the step waited for communication
  std::vector<int32_t> tally;  // of all ranks, as StepTally has it; empty: there is none
  // Nothing was changed: its gradient overflowed, which loss scaling expects now and then, or its
  // norm was an outlier (StepOptions::skip_outliers).
  bool was_skipped = false;
  bool was_outlier = false;
};

// What a resumed run needs to know of the steps before, besides its tensors.
struct StepHistory {
  int64_t skipped_steps = 0;                    // all of them
  int64_t outlier_steps = 0;                    // of those, for their norm
  std::optional<LossScale> loss_scale = {};     // of runs with loss scaling
  std::optional<optim::NormWindow> norms = {};  // of runs that skip outliers
};

// The parts of a step, in order; forward and backward come once for each micro-batch.
enum class StepPhase : uint8_t { kPrepare, kForward, kBackward, kReduce, kUpdate };

std::string_view phase_name(StepPhase phase);  // "forward"

// Looks on. Methods are called on the thread that calls TrainStep's.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Work of a phase is queued between the two; kPrepare comes before every forward again.
  virtual void begins(StepPhase) {}
  virtual void ends(StepPhase) {}
  // On a pipeline's rank: what the forward or backward that begins next is of.
  virtual void acts(const comm::Action&) {}
  // The results of a step are here: when it ran at once, before run() returns; else when the first
  // forward of the next step is queued, whose backward is not, or in finish(). Must not wait for
  // other ranks, which may wait for what this one sends in that step.
  virtual void done(const StepOutcome&) {}
};

class PipelineStep;

// Training steps of a model on the ranks of a group: the one place that knows in which order
// forward, backward, collectives, clipping, the optimizer and loss scaling come. All ranks call the
// same methods in the same order.
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
  // All that is referred to outlives this. Parameters get their memory, which they have as long as
  // this lives, and initial values. Throws ConfigError, as the parts do, for options that do not go
  // together. Collective.
  TrainStep(Context& context, const comm::ShardGroups& groups, StepModel model,
            const StepOptions& options, const MakeOptimizer& make_optimizer,
            StepObserver* observer = nullptr);
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Queues a step: on a device whose stream runs later the host is ahead of it by one step at most.
  void run(const StepInput& input);
  // The loss of a micro-batch, forward alone; in a pipeline on the ranks that have losses, else
  // undefined. Collective over the ranks of a pipeline.
  Tensor loss(const DeviceBatch& batch);
  // Returns when the steps that were queued have been done, and their outcome told.
  void finish();
  // Also when an optimizer in host memory is done with them: parameters and states are those after
  // the last step.
  void finish_update();

  // Frees the memory of captured graphs; run() is not called any more.
  void drop_graphs();

  // What is not needed (a loss scale without loss scaling) does not count. history() waits for the
  // device. Throws DataError for norms of another window.
  void resume(const StepHistory& history);
  StepHistory history() const;
  int64_t skipped_steps() const { return skipped_steps_; }  // of those whose outcome was told
  int64_t outlier_steps() const { return outlier_steps_; }  // of the skipped ones
  bool scales_loss() const { return scaler_.has_value(); }
  bool skips_outliers() const { return outliers_.has_value(); }

  // After `done` steps, the last of a run with local steps: all replicas have the same parameters.
  void finish_local_steps(int64_t done);
  // Calls `use` while parameters are what all replicas of local steps have alike
  // (comm::LocalSteps), after which they are as before; without local steps they are what they are.
  // Collective.
  void with_anchors(const std::function<void()>& use);

  // From the parameters as they are now on, keeps their moving average (Optimizer::keep_average()).
  void keep_average(double decay) { optimizer_->keep_average(decay); }
  // Calls `use` while parameters are their average, whose bits and theirs are then as before.
  // Collective.
  void with_average(const std::function<void()>& use);

  comm::DataParallel& parallel() { return *parallel_; }
  const comm::DataParallel& parallel() const { return *parallel_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  // Where what is offloaded goes; null: nothing is.
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
  std::vector<Tensor> run_micro_batches(const StepInput& input);
  void forward(const StepInput& input, MicroBatches::Place place);
  void update(int64_t step);
  void sum_tally();
  bool steps_during_backward() const;

  // Takes the parameters' memory away in the end, as the model may outlive the context, and gives it
  // back, as the group that it may have come from may go before the context does.
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
  std::optional<offload::OptimizerOffload> offload_;  // goes before the optimizer, which it uses
  std::optional<amp::GradScaler> scaler_;
  std::optional<optim::OutlierSkip> outliers_;
  std::optional<MicroBatches> micro_batches_;
  std::unique_ptr<PipelineStep> pipeline_;  // in place of these; null: there is none
  std::unique_ptr<StepTally> tally_;        // null: none
  StepResults results_;
  std::optional<Queued> queued_;  // whose outcome has not been told
  int64_t skipped_steps_ = 0;
  int64_t outlier_steps_ = 0;
  int64_t overflows_ = 0;  // of the skipped steps before this run was resumed without loss scaling
};

}  // namespace shale::models
