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

// Where a run is, besides its tensors. Everything else that a step needs follows from this and the
// options: randomness is counted, not kept.
struct RunPosition {
  int64_t step = 0;          // optimizer steps done
  int64_t samples = 0;       // sequences used, by all ranks: where the data goes on
  StepHistory history = {};  // of those steps
};

// What is saved and loaded.
struct RunTensors {
  Context& context;
  comm::DataParallel& parallel;
  const optim::Optimizer& optimizer;
};

// The checkpoints of a training run, as --save-every, --keep, --resume and their like say: which
// one it goes on from, when it saves, what is told about it (log, status.json). Methods are
// collective unless said otherwise.
class RunCheckpoints {
 public:
  // Finds what --resume asks for; changes nothing. No other run may write to --out from here on.
  // Throws ConfigError if --out has checkpoints and --resume is none, MissingInputError if there is
  // nothing in the folder of --resume.
  // timeline: gets what threads that write do; null: there is none. It outlives this.
  RunCheckpoints(const RunConfig& config, comm::ProcessGroup& group, Timeline* timeline = nullptr);

  // Whether load() will find tensors; false: the run begins. Not collective.
  bool resumes() const { return !candidates_.empty(); }
  // Whether the run goes on in the folder in which it was. Not collective.
  bool same_folder() const { return same_folder_; }

  // Loads the newest checkpoint that is whole; those before it that are not are named in warnings,
  // and set aside. Without any, the position of a new run. Then clears away what killed runs left.
  // `run`: what checkpoints will say of this one. Throws ConfigError if the checkpoint's run was
  // another (check_same_run), DataError if no checkpoint is whole, or if its tensors are not those
  // of this model and optimizer, DiskError if there is no room for one more.
  RunPosition load(const RunTensors& tensors, RunDescription run);

  // What was written to this report before a save is on the disk when its checkpoint is. On the
  // rank that has it, which keeps it as long as this object. Not collective.
  void keep_with(RunReport& report) { report_ = &report; }

  // What the other ranks should know of saves. Not collective.
  SaveNews news() const;
  // Between steps, before due(): what all ranks had to say after `step` steps. Goes on with a save
  // that is under way.
  void hear(const SaveNews& all, int64_t step);
  // Whether it is time to save after `step` steps. Not collective; the same on all ranks.
  bool due(int64_t step) const;
  // Copies the state, unless the last checkpoint is of this step, and writes it beside training.
  void save(const RunPosition& position);
  // Waits until nothing is being written.
  void finish();

  // Replaces status.json; does nothing on other ranks than 0. Not collective. What is told of the
  // end of the run stays.
  void tell(RunState state, int64_t step, std::optional<int> exit_code = {},
            const std::string& message = {});
  // The same for an error that is on its way: what goes wrong is only logged. May be called on
  // another thread.
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
  int64_t saved_step_ = 0;       // the last save, or the step loaded
  bool is_time_ = false;         // to save, as rank 0's clock says
  SaveSchedule schedule_;

  std::mutex telling_;             // the thread that writes checkpoints tells too
  std::optional<int64_t> newest_;  // committed
  bool ended_ = false;             // and told so

  // The last member: its thread uses the others.
  std::unique_ptr<comm::CheckpointSaver> saver_;  // null: --no-save
};

}  // namespace shale::models
