#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/models/language_model.h"
#include "shale/models/training/checks/straggler_watch.h"
#include "shale/models/training/config.h"
#include "shale/models/training/micro_batches.h"
#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/report/progress.h"
#include "shale/models/training/run_checkpoints.h"
#include "shale/models/training/step_results.h"
#include "shale/runtime/amp/grad_scaler.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/offload/optimizer_offload.h"
#include "shale/runtime/optim/adafactor.h"

namespace shale::models {

// Trains a language model on the ranks of a World: everything between the options and the exit
// code. All members are set up by the constructor, so that what cannot work fails before the first
// step.
class Trainer {
 public:
  // `config` is resolved. Collective.
  Trainer(const TrainConfig& config, comm::World& world);
  ~Trainer();

  // Trains, saves, evaluates, samples, exports as the options say. When a rank is asked to stop
  // (models/training/stop_signals.h), all ranks save after the same step and it returns
  // kInterrupted. Collective.
  ExitCode run();

 private:
  void build_host_tier();
  void build_model();
  void build_optimizer();
  optim::Adafactor::SumOverRanks sum_over_shards();
  void open_output();
  // Goes on from a checkpoint if there is one to go on from.
  void resume();
  void open_metrics();

  ExitCode train();
  ExitCode stop(int64_t step);
  // Between two steps: what is due after `step` of them.
  void after_step(int64_t step);
  RunPosition position(int64_t step) const;
  void save(int64_t step);
  // Queues a step. Its results are taken by finish_step(): on a device whose stream runs later not
  // before the forward of the next step is queued, so that the device never waits for the host.
  void train_step(int64_t step);
  void forward(int64_t step, MicroBatches::Place place);
  bool steps_during_backward() const;
  // Whether the step was skipped because its gradient overflowed, which loss scaling expects now
  // and then.
  bool was_skipped() const;
  // Waits for the step that was queued last, checks and reports it. Does nothing if there is none.
  void finish_step();
  double exchange_results();
  void check_finite(int64_t step, float loss);

  void prepare_evaluation();
  void evaluate(int64_t step);
  std::vector<int32_t> prompt() const;
  void sample();
  void report(const StepMetrics& metrics);
  void check_same_data();

  Tensor upload(const std::vector<int32_t>& tokens, const Batch& batch);
  bool is_main() const { return world_.rank() == 0; }
  int64_t tokens_per_step() const { return config_.global_batch * config_.seq_len; }

  // A step whose results have not been taken yet.
  struct QueuedStep {
    int64_t step = 0;
    double lr = 0;
    double exposed_s = 0;  // in communication
    std::chrono::steady_clock::time_point start;
  };

  const TrainConfig config_;
  comm::World& world_;
  DatasetSplits data_;
  Context context_;
  std::unique_ptr<offload::HostTier> host_tier_;  // null: nothing is offloaded
  std::unique_ptr<offload::ActivationOffload> activation_offload_;
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<LanguageModel> model_;
  ParallelSetup setup_;
  std::unique_ptr<comm::DataParallel> parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<amp::GradScaler> scaler_;  // null: no loss scaling
  int64_t skipped_steps_ = 0;
  int64_t first_step_ = 0;  // not 0: where a resumed run goes on
  int64_t done_steps_ = 0;  // whose results were taken
  std::unique_ptr<offload::OptimizerOffload> optimizer_offload_;
  optim::Schedule schedule_;
  BatchLayout layout_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<RunCheckpoints> checkpoints_;  // uses the metrics
  std::unique_ptr<Prefetcher> batches_;
  std::unique_ptr<MicroBatches> micro_batches_;
  std::optional<EvalSampler> eval_sampler_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<StepResults> results_;
  std::optional<QueuedStep> queued_;
  std::chrono::steady_clock::time_point finished_;  // the last step
  StragglerWatch stragglers_;
  bool stop_agreed_ = false;                         // by all ranks
  std::chrono::steady_clock::time_point exchanged_;  // the last results
  double waited_s_ = -1;                             // for other ranks until then
  double peak_flops_ = 0;                            // of one rank's device; 0: unknown
};

}  // namespace shale::models
