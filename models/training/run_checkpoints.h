#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/models/training/report/run_report.h"
#include "shale/models/training/report/run_status.h"
#include "shale/models/training/resume_rules.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/save_schedule.h"
#include "shale/models/training/step.h"
#include "shale/models/training/step_exchange.h"

namespace shale::models {

// Position of a run, besides its tensors. Everything else that a step needs follows from this and
// the options: random numbers are derived from counters, not from a saved state.
struct RunPosition {
  int64_t step = 0;          // optimizer steps done
  int64_t samples = 0;       // sequences used by all ranks; the data continues there
  StepHistory history = {};  // of those steps
};

// State that is saved and loaded.
struct RunTensors {
  Context& context;
  comm::DataParallel& parallel;
  const optim::Optimizer& optimizer;
};

// Checkpoints of a training run, according to --save-every, --keep, --resume and related options:
// which one it resumes from, when it saves, and the messages about it (log, status.json). Methods
// are collective unless stated otherwise.
class RunCheckpoints {
 public:
  // Finds the candidates for --resume; changes no files. From here on no other run may write to
  // --out. Throws ConfigError if --out has checkpoints and --resume is not given, MissingInputError
  // if the folder of --resume has none. timeline: records the work of writer threads; null: none.
  // It must outlive this.
  RunCheckpoints(const RunConfig& config, comm::ProcessGroup& group, Timeline* timeline = nullptr);

  // Returns true if load() will read a checkpoint; false: a new run. Not collective.
  bool resumes() const { return !candidates_.empty(); }
  // Returns true if the run continues in its own output folder. Not collective.
  bool same_folder() const { return same_folder_; }

  // Loads the newest intact checkpoint; newer damaged ones are renamed, with a warning for each.
  // Without any, returns the position of a new run. Then removes leftovers of killed runs. `run` is
  // stored in later checkpoints. Throws ConfigError if the checkpoint is of a different run
  // (check_same_run), DataError if no checkpoint is intact or its tensors do not match the model
  // and optimizer, DiskError if there is no room for another checkpoint.
  RunPosition load(const RunTensors& tensors, RunDescription run);

  // Syncs this report to the disk with every save, so that it contains everything written before
  // the checkpoint. Call it on the rank that has the report, which must outlive this. Not
  // collective.
  void keep_with(RunReport& report) { report_ = &report; }

  // Returns this rank's state of saves, for the other ranks. Not collective.
  SaveNews news() const;
  // Call between steps, before due(), with the combined state of all ranks after `step` steps.
  // Advances a save in progress.
  void hear(const SaveNews& all, int64_t step);
  // Returns true if a checkpoint is due after `step` steps; equal on all ranks. Not collective.
  bool due(int64_t step) const;
  // Copies the state, unless the last checkpoint is of this step, and writes it in the background.
  void save(const RunPosition& position);
  // Waits until no write is in progress.
  void finish();

  // Replaces status.json on rank 0; does nothing on other ranks. Not collective. Once the end of
  // the run is reported, later calls are ignored.
  void tell(RunState state, int64_t step, std::optional<int> exit_code = {},
            const std::string& message = {});
  // Reports an error that is being thrown; problems of the report are only logged. May be called on
  // any thread.
  void tell_failure(int64_t step, int exit_code, const std::string& message) noexcept;

 private:
  void find_candidates();
  void check_saves();
  RunPosition load_newest(const RunTensors& tensors);
  void read(const std::string& checkpoint, const RunTensors& tensors, RunPosition& position);
  void sync_report();
  void committed(int64_t step);

  const RunConfig& config_;
  comm::ProcessGroup& group_;
  Timeline* const timeline_;
  const std::string folder_;             // --out's checkpoints/
  std::vector<std::string> candidates_;  // newest first
  bool same_folder_ = false;
  RunDescription run_;
  std::optional<RunTensors> tensors_;
  RunReport* report_ = nullptr;  // null: this rank writes none
  int64_t saved_step_ = 0;       // of the last save, or the step loaded
  bool is_time_ = false;         // a save is due by rank 0's clock
  SaveSchedule schedule_;

  std::mutex telling_;             // protects status.json, which the writer thread updates too
  std::optional<int64_t> newest_;  // committed
  bool ended_ = false;             // status.json reports the end of the run

  // Last member, as its thread uses the others.
  std::unique_ptr<comm::CheckpointSaver> saver_;  // null: --no-save
};

}  // namespace shale::models
