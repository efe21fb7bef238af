#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
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

// Runs a task on the ranks of a World: everything between the options and the exit code. All
// members are set up by the constructor, so that what cannot work fails before the first step.
class Trainer : private StepObserver {
 public:
  // `config` is resolved, and among the options that `spec` describes, which a resumed run is held
  // to. All outlive this. Collective.
  Trainer(const RunConfig& config, const ConfigSpec& spec, Task& task, comm::World& world);
  ~Trainer() override;

  // Trains, saves, evaluates, finishes the task as the options say. When a rank is asked to stop
  // (models/training/stop_signals.h), all ranks save after the same step and it returns
  // kInterrupted. Collective.
  ExitCode run();

 private:
  void check_same_task();
  void build_step();
  void open_output();
  // Goes on from a checkpoint if there is one to go on from.
  void resume(const ConfigSpec& spec);
  void open_report(const ConfigSpec& spec);

  ExitCode train();
  ExitCode stop(int64_t step);
  // Between two steps: what is due after `step` of them.
  void after_step(int64_t step);
  RunPosition position(int64_t step) const;
  void save(int64_t step);
  void train_step(int64_t step);
  void evaluate(int64_t step);
  // Tells the other ranks of a step, and settles the one before.
  void done(const StepOutcome& outcome) override;
  Tracer* ranges();
  void begins(StepPhase phase) override;
  void ends(StepPhase phase) override;
  StepMetrics metrics_of(const StepOutcome& outcome);
  void send_news(const StepOutcome& outcome);
  // Checks and reports the step that all ranks have been told of, if there is one that was not.
  void settle();
  void check_finite(const StepOutcome& outcome, float loss);
  void report(const StepMetrics& metrics);
  // Logs what the run achieved, where it is saved and what to do next.
  void report_end(double run_s) const;
  void report_data_wait(double run_s) const;
  const Batch& next_batch();
  void report_ranks(int64_t step);      // collective
  void write_histograms(int64_t step);  // collective

  TaskContext task_context();
  bool is_main() const { return world_.rank() == 0; }

  const RunConfig config_;
  comm::World& world_;
  WarningsFile warnings_;
  std::unique_ptr<OutputLock> lock_;  // of --out; null: this rank writes nothing there
  Task& task_;
  const SampleUnit unit_;
  Context context_;
  std::unique_ptr<Timeline> timeline_;  // null: there is no --trace
  std::unique_ptr<comm::ProcessGroup> group_;
  const DataRanks data_;
  std::unique_ptr<comm::Parallel> parallel_;
  std::unique_ptr<MemoryReport> memory_;
  std::unique_ptr<TrainStep> step_;
  int64_t first_step_ = 0;               // not 0: where a resumed run goes on
  std::atomic<int64_t> done_steps_ = 0;  // whose results were taken; other threads look, too
  optim::Schedule schedule_;
  BatchLayout layout_;
  std::unique_ptr<RunReport> report_;            // null: another rank writes it
  std::unique_ptr<RunCheckpoints> checkpoints_;  // uses the report
  std::unique_ptr<Prefetcher> batches_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<RankReport> ranks_;
  std::unique_ptr<StepTrace> trace_;  // null, as timeline_
  StepAccounts accounts_;
  StragglerWatch stragglers_;
  // A step of which the ranks have told each other, and what waits for their news.
  struct Told {
    StepOutcome outcome;
    StepMetrics metrics;    // without the loss
    bool is_timed = false;  // the first is not: it includes building the model
  };
  std::optional<Told> told_;
  std::optional<EvalMetrics> best_;    // lowest validation loss since this start
  std::optional<SaveNews> save_news_;  // of all ranks, of the last step that was settled
  bool stop_agreed_ = false;           // by all ranks
  double peak_flops_ = 0;              // of one rank's device; 0: unknown
  StepExchange exchange_;              // destroyed before the group
};

}  // namespace shale::models
