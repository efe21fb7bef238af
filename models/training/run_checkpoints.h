#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/models/training/checks/shared_output.h"
#include "shale/models/training/host_command.h"
#include "shale/models/training/report/run_report.h"
#include "shale/models/training/report/run_status.h"
#include "shale/models/training/resume_rules.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/run_position.h"
#include "shale/models/training/save_schedule.h"
#include "shale/models/training/step.h"
#include "shale/models/training/step_exchange.h"

namespace shale::models {

// Objects whose state a checkpoint saves and loads.
struct RunTensors {
  Context& context;
  comm::DataParallel& parallel;
  const optim::Optimizer& optimizer;
};

// Checkpoints of a training run, according to --save-every, --keep, --resume and related options.
// Decides from which checkpoint the run resumes and when it saves, and reports that (log,
// status.json). Methods are collective unless stated otherwise.
class RunCheckpoints {
 public:
  // Runs --before-resume and finds the candidates for --resume. From here on no other run may write
  // to --out. timeline: records the work of writer threads, and must outlive this; null: none.
  // Throws ConfigError if --out has checkpoints and --resume is not given, or if --out is not one
  // folder for all hosts (find_owners()). Throws MissingInputError if the folder of --resume has no
  // checkpoint; DiskError if --before-resume fails.
  RunCheckpoints(const RunConfig& config, const comm::World& world, comm::ProcessGroup& group,
                 Timeline* timeline = nullptr);

  // Returns true if this rank writes to a folder --out of its own host, which rank 0 does not see.
  // Not collective.
  bool has_own_folder() const { return owners_.is_owner && group_.rank() != 0; }
  // Each commit first calls `check`. An exception from it ends the save. Not collective.
  void before_commit(std::function<void()> check) { check_ = std::move(check); }

  // Returns true if load() will read a checkpoint; false: a new run. Not collective.
  bool resumes() const { return !candidates_.empty(); }
  // Returns true if the run continues in its own output folder. Not collective.
  bool same_folder() const { return same_folder_; }

  // Gives a new run the optimizer states of RunConfig::optimizer_from, which is a run or a
  // checkpoint. Returns what the steps need to know of that run. Throws as load().
  StepHistory load_optimizer(const RunTensors& tensors);
  // Loads the newest intact checkpoint. Renames newer ones, which are damaged, with a warning for
  // each. Returns the position of a new run if there is no checkpoint. Then removes leftovers of
  // killed runs. Later checkpoints store `run`. Throws ConfigError if the checkpoint is of a
  // different run (check_same_run()), DataError if no checkpoint is intact or its tensors do not
  // match the model and optimizer, DiskError if there is no room for another checkpoint.
  RunPosition load(const RunTensors& tensors, RunDescription run);

  // Makes every save sync this report to the disk first, so that the report contains all steps of
  // the checkpoint. Call it on the rank that has the report, which must outlive this. Not
  // collective.
  void keep_with(RunReport& report);

  // Returns this rank's state of saves, which other ranks need to know. Not collective.
  SaveNews news() const;
  // Call it between steps, before due(), with the combined state of saves of all ranks after `step`
  // steps. Advances a save in progress. Logs a failed save as a warning and tries it again. Throws
  // its DiskError if no save has succeeded for SaveSchedule::kPatience, as save() and finish() do.
  void hear(const SaveNews& all, int64_t step);
  // Returns true if a checkpoint is due after `step` steps; equal on all ranks. best_step: step
  // with the lowest validation loss. Not collective.
  bool due(int64_t step, int64_t best_step) const;
  // Copies the state and writes it in the background. Does nothing if the last checkpoint is of
  // this step.
  void save(const RunPosition& position);
  // Waits until the last save is on the disk and --after-save has ended. Throws DiskError if the
  // save fails several times.
  void finish();
  // Call it after finish(). Throws DiskError if --after-save failed for the last checkpoint.
  void check_after_save();

  // Replaces status.json on rank 0; does nothing on other ranks. Not collective. Once the end of
  // the run is reported, later calls are ignored.
  void tell(RunState state, int64_t step, std::optional<int> exit_code = {},
            const std::string& message = {});
  // Writes the error that ends the run to status.json. If that fails, only logs the failure. Can be
  // called on any thread.
  void tell_failure(int64_t step, int exit_code, const std::string& message) noexcept;

 private:
  void run_before_resume();
  void find_candidates(const std::vector<int64_t>& steps);
  std::vector<int64_t> steps_of_hosts();
  void wait_for(const HostCommand* command);
  void check_saves();
  void saved(std::optional<int64_t> step);
  void finish_save();
  void failed(const DiskError& error);
  void clean_up();
  bool spares(int64_t step);
  RunPosition load_newest(const RunTensors& tensors);
  void read(const std::string& checkpoint, const RunTensors& tensors, RunPosition& position);
  void sync_report();
  void committed(int64_t step);

  const RunConfig& config_;
  comm::ProcessGroup& group_;
  Timeline* const timeline_;
  OutputOwners owners_;
  const std::string folder_;             // checkpoints/ in the folder of --out
  std::vector<std::string> candidates_;  // checkpoint folders to try, newest first
  bool same_folder_ = false;
  RunDescription run_;
  std::optional<RunTensors> tensors_;
  RunReport* report_ = nullptr;  // null: this rank writes no report
  std::function<void()> check_;  // see before_commit()
  int64_t saved_step_ = 0;       // step of the last save that did not fail, or that was loaded
  int64_t durable_step_ = 0;     // step of the last save that is on the disk, or that was loaded
  std::optional<RunPosition> last_;  // position of the last save() that had something to save
  std::string problem_;              // error of the last failed save
  bool is_time_ = false;             // rank 0's clock says that a save is due
  SaveSchedule schedule_;

  std::mutex telling_;             // protects status.json, which the writer thread updates too
  std::optional<int64_t> newest_;  // step of the newest committed checkpoint
  int64_t best_step_ = 0;          // step of the lowest validation loss
  bool ended_ = false;             // status.json already reports the end of the run

  std::unique_ptr<HostCommand> after_save_;  // null: this rank does not run the command
  // Must be the last member, because its thread uses the other members.
  std::unique_ptr<comm::CheckpointSaver> saver_;  // null with --no-save
};

}  // namespace shale::models
