#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/saver.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {

enum class OptimizerKind {
  kAdamW,
  kAdamWBF16,
  kAdamW8bit,
  kLion,
  kAdafactor,
  kSgd,
  kMuon,
  kLamb,
  kOneBitAdam  // runs AdamW for the first kFreezeStep steps
};
constexpr int64_t kFreezeStep = 2;

// Parallelism and options of a run.
struct RunLayout {
  comm::DataParallelOptions parallel = {};
  models::StepOffload offload = {};
  float loss_scale = 0;  // initial loss scale; 0: none
  std::optional<optim::OutlierOptions> skip_outliers = {};
  double ema = 0;  // decay of the weight average; 0: no average
  float clip = 1;
  std::optional<comm::LocalStepsOptions> local_steps = {};
  std::optional<Operands> fp8 = {};  // operand format of the GEMMs in all blocks
};

// Losses of some steps, and the bytes of all whole tensors after them, by name.
struct RunEnd {
  std::vector<float> losses;
  std::map<std::string, std::string> state;
  friend bool operator==(const RunEnd&, const RunEnd&) = default;
};

// Records the losses of the rank's micro-batches in the last step.
struct StepLosses : models::StepObserver {
  void done(const models::StepOutcome& outcome) override { last = outcome.losses; }
  std::vector<double> last;
};

// A run of the tiny model that can be saved and loaded.
class TinyRun {
 public:
  TinyRun(const comm::ShardGroups& groups, comm::ProcessGroup& all, const RunLayout& layout,
          OptimizerKind kind = OptimizerKind::kAdamW);

  // Trains steps [step(), step() + count) and returns their losses. The gradient of the first of
  // these steps is multiplied by `gradient_factor`.
  std::vector<float> train(int64_t count, double gradient_factor = 1);

  RunEnd end_after(int64_t count) {
    const std::vector<float> losses = train(count);
    return {losses, state()};
  }

  std::vector<StatePart> parts();
  std::vector<StatePart> share() { return share_to_write(parts(), groups_); }

  void start_save(comm::CheckpointSaver& saver) { saver.save({.step = steps_}, share()); }
  void save(const std::string& folder);
  void load(const std::string& checkpoint);

  // Returns the bytes of all whole tensors by name. Collective.
  std::map<std::string, std::string> state();
  // Overwrites the whole state with values that no run has.
  void poison();

  Context& context() { return context_; }
  comm::DataParallel& parallel() { return step_.parallel(); }
  const optim::Optimizer& optimizer() { return step_.optimizer(); }
  int64_t skipped_steps() const { return step_.skipped_steps(); }
  models::TrainStep& step() { return step_; }

 private:
  const TrainOptions batch_;  // batch sizes are powers of two, which makes sums reproducible
  comm::ShardGroups groups_;
  comm::ProcessGroup& all_;
  Context context_;
  std::unique_ptr<models::LanguageModel> model_;
  StepLosses losses_;
  models::TrainStep step_;
  int64_t steps_ = 0;
};

// Returns the bytes of a part in host or device memory.
std::string bytes_of(const StatePart& part);

// A folder that all ranks see; the destructor removes it. Collective.
class SharedDir {
 public:
  explicit SharedDir(comm::ProcessGroup& all);
  ~SharedDir();
  SharedDir(const SharedDir&) = delete;
  SharedDir& operator=(const SharedDir&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  comm::ProcessGroup& all_;
  std::optional<TempDir> dir_;
  std::string path_;
};

// Runs of these layouts, and a run on one rank, are resumed from a checkpoint of another stage.
// Checks that they have the same bits. Does nothing if the number of ranks is no power of two.
// Collective.
void check_resumes(OptimizerKind kind, const std::vector<RunLayout>& layouts);

// Returns groups: element n is the group of the first n ranks, and null on all other ranks.
// Collective over the World.
std::vector<std::unique_ptr<comm::ProcessGroup>> groups_of_first_ranks(comm::ProcessGroup& all);

}  // namespace shale::test
