#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/models/training/checks/loss_watch.h"
#include "shale/models/training/checks/straggler_watch.h"
#include "shale/models/training/output_lock.h"
#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/report/memory_report.h"
#include "shale/models/training/report/progress.h"
#include "shale/models/training/report/rank_report.h"
#include "shale/models/training/report/run_report.h"
#include "shale/models/training/report/step_trace.h"
#include "shale/models/training/report/warnings_file.h"
#include "shale/models/training/run_checkpoints.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/step_accounts.h"
#include "shale/models/training/step_exchange.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Checks a run before its model has memory. Collective.
using TrainerCheck = std::function<void(const Task&, Context&, comm::ProcessGroup&)>;

// Runs a task on the ranks of a World, from the resolved options to the exit code. The constructor
// sets up all members, so that invalid setups fail before the first step.
class Trainer : private StepObserver {
 public:
  // `config` must be resolved. spec: describes all options, which are compared with those of the
  // checkpoint if the run resumes. All arguments must outlive this. Collective.
  Trainer(const RunConfig& config, const ConfigSpec& spec, Task& task, comm::World& world,
          const TrainerCheck& check = nullptr);
  ~Trainer() override;

  // Trains, saves, evaluates and finishes the task. If a rank is asked to stop
  // (models/training/stop_signals.h), all ranks drop their current step before the same micro-batch
  // and save, and the result is kInterrupted. Collective.
  ExitCode run();

 private:
  void check_same_task();
  void build_step();
  void open_output();
  // Loads the checkpoint that --resume selects, if there is one.
  void resume(const ConfigSpec& spec);
  void open_report(const ConfigSpec& spec);

  ExitCode train();
  ExitCode stop(int64_t step);
  // Does what is due after `step` completed steps: evaluation, reports, checkpoints.
  void after_step(int64_t step);
  RunPosition position(int64_t step) const;
  void save(int64_t step);
  // Returns false if the step was dropped, because a rank was asked to stop.
  bool train_step(int64_t step);
  // Returns true on all ranks if a rank was asked to stop. Collective.
  bool stops_before(int64_t micro);
  // Removes the samples of --skip-samples from the run. Call it once layout_ has its origin.
  void skip_samples();
  void evaluate(int64_t step);
  // Returns true if --patience ends the run; equal on all ranks.
  bool out_of_patience() const;
  // Settles the previous step, and starts to exchange the results of this step with other ranks.
  void done(const StepOutcome& outcome) override;
  Tracer* ranges();
  void begins(StepPhase phase) override;
  void ends(StepPhase phase) override;
  StepMetrics metrics_of(const StepOutcome& outcome);
  void send_news(const StepOutcome& outcome, double step_ms);
  // If the results of a step are being exchanged, waits for them, and then checks and reports the
  // step.
  void settle();
  // Throws NonFiniteError unless --skip-non-finite allows to skip the step.
  void check_finite(const StepOutcome& outcome, float loss);
  void report(const StepMetrics& metrics);
  // Logs the result of the run, its folder, and commands to run next.
  void report_end(double run_s) const;
  void report_data_wait(double run_s) const;
  const Batch& next_batch();
  void report_ranks(int64_t step);  // collective

  TaskContext task_context();
  bool is_main() const { return world_.rank() == 0; }

  const RunConfig config_;
  comm::World& world_;
  WarningsFile warnings_;
  std::unique_ptr<OutputLock> lock_;  // lock of --out; null: this rank does not write there
  Task& task_;
  const SampleUnit unit_;
  const int64_t parameters_;  // number of elements before ranks take their shards
  Context context_;
  std::unique_ptr<Timeline> timeline_;  // null without --trace
  std::unique_ptr<comm::ProcessGroup> group_;
  std::vector<std::string> left_out_;  // kernels that no rank uses, from choose_kernels()
  const DataRanks data_;
  std::unique_ptr<comm::Parallel> parallel_;
  std::unique_ptr<MemoryReport> memory_;
  std::unique_ptr<TrainStep> step_;
  int64_t first_step_ = 0;               // number of steps done before this start
  std::atomic<int64_t> done_steps_ = 0;  // number of reported steps; other threads read it too
  optim::Schedule schedule_;
  BatchLayout layout_;
  std::unique_ptr<RunReport> report_;            // null on ranks other than 0
  std::unique_ptr<RunCheckpoints> checkpoints_;  // must be destroyed before report_, which it uses
  std::unique_ptr<Prefetcher> batches_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<RankReport> ranks_;
  GpuWarnings gpu_warnings_;
  std::unique_ptr<StepTrace> trace_;  // null without --trace
  StepAccounts accounts_;
  StragglerWatch stragglers_;
  LossWatch loss_watch_;
  // Completed step whose results are being exchanged with other ranks.
  struct Told {
    StepOutcome outcome;
    StepMetrics metrics;    // without the loss, which is still being exchanged
    bool is_timed = false;  // false for the first step, because it includes building the model
  };
  std::optional<Told> told_;
  ValidationHistory validations_;
  std::optional<SaveNews> save_news_;  // save state of all ranks after the last settled step
  bool stop_agreed_ = false;           // all ranks have agreed to stop
  bool drops_steps_ = true;  // false: forward changes the model, so a step cannot be dropped
  int64_t non_finite_in_a_row_ = 0;    // number of non-finite steps in a row, up to the last step
  double peak_flops_ = 0;              // peak FLOP/s of one rank's device; 0: unknown
  StepExchange exchange_;              // exchange_ and votes_ must be destroyed before group_
  StopVotes votes_;
};

}  // namespace shale::models
