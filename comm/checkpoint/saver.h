#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/training_state.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/context.h"

namespace shale {
class Timeline;
}

namespace shale::comm {

// What is saved beside tensors; only rank 0's counts.
struct CheckpointInfo {
  int64_t step = 0;           // optimizer steps done
  std::string state = "{}";   // a JSON object: where the run is
  std::string config = "{}";  // a JSON object: what run it is
  CheckpointFolder::Attachments attachments = {};
};

// What becomes of checkpoints, and who is told.
struct CheckpointSaverOptions {
  int64_t keep = 0;  // newest checkpoints that stay; 0: all
  // Called on rank 0 before a checkpoint is committed, on the thread that writes: what must be on
  // the disk when the checkpoint is, and is not in it, is synced here. If it throws, the save
  // fails.
  std::function<void()> before_commit = {};
  // Called on rank 0 once a checkpoint is safe, with its step: on the thread that writes, so that
  // it may wait for the disk. What it throws is logged.
  std::function<void(int64_t step)> committed = {};
  Timeline* timeline = nullptr;  // gets what the threads do, as a track "checkpoint"; null: nobody
};

// How far the ranks are with a save: phases that have ended on this rank, and the one in which it
// failed, by a number that grows from save to save; 0: none. What ranks have said of one phase can
// be told from what they say of the next.
struct SaveProgress {
  int64_t finished = 0;
  int64_t failed = 0;
};

// What a save cost this rank, for reports.
struct CheckpointCost {
  int64_t bytes = 0;   // that this rank wrote
  double copy_s = 0;   // for which training stood still
  double write_s = 0;  // from the first byte copied to the disk's confirmation
};

// Saves the training state of the ranks of a group while they train on. save() copies this rank's
// share to host memory and returns; threads write it, beginning with what has been copied, and sync
// it to the disk; rank 0 commits (comm/checkpoint/folder.h) once all ranks have written
// theirs. The ranks agree on that between steps, in poll(), or in advance() if they exchange
// progress() by other means, so that nothing here communicates beside training.
//
// A checkpoint exists when poll(), advance() or finish() has returned its step. What fails before,
// on any rank, is thrown on all of them by the same call, and leaves the checkpoints before it as
// they were; a rank that dies leaves a folder that the next run clears away.
class CheckpointSaver {
 public:
  // `folder` exists: the run's checkpoints/. Group and context outlive this.
  CheckpointSaver(ProcessGroup& group, Context& context, std::string folder,
                  const CheckpointSaverOptions& options);
  ~CheckpointSaver();  // gives up what is not committed
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Checks, before the first step, that a manifest can say what lies where. Throws ConfigError, on
  // all ranks, where the state is in more pieces than fit into one. Collective.
  void check(const std::vector<StatePart>& share);

  // Collective. `share`: what this rank writes (share_to_write). Its tensors may change when this
  // returns. Waits for the save before, whose step is returned if it became committed only now.
  std::optional<int64_t> save(const CheckpointInfo& info, const std::vector<StatePart>& share);
  // Between steps, as long as a save is in flight; collective. Returns the step when it has become
  // committed. Never waits for the disk.
  std::optional<int64_t> poll();
  // The same in two halves, for callers who exchange more than this: what to tell the other ranks,
  // and what to do once all have told it: the least that they have finished, the last that failed.
  // That may be some time ago. The second is collective, and does nothing where nothing is due.
  SaveProgress progress() const;
  std::optional<int64_t> advance(const SaveProgress& all);
  // The same, but waits until nothing is in flight. Collective.
  std::optional<int64_t> finish();
  bool in_flight() const { return phase_ != Phase::kIdle; }

  // Cost of the last save; write_s is there once it has been committed.
  const CheckpointCost& cost() const { return cost_; }

 private:
  struct Staged;
  enum class Phase { kIdle, kWriting, kCommitting };

  void start(std::function<void()> work);
  void join();
  void enter(Phase phase);
  void stage(const std::vector<StatePart>& share);
  void write();
  void commit(const std::vector<std::string>& shards);
  [[noreturn]] void give_up();
  void record(const char* what, std::chrono::steady_clock::time_point begin) const;

  ProcessGroup& group_;
  Context& context_;
  const CheckpointFolder folder_;
  const CheckpointSaverOptions options_;
  CheckpointCost cost_;

  Phase phase_ = Phase::kIdle;
  int64_t phases_ = 0;  // that have begun
  CheckpointInfo info_;
  std::string nonce_;               // of the folder, until it is committed
  std::unique_ptr<Staged> staged_;  // host memory, kept from save to save
  std::string report_;              // what this rank wrote, for rank 0
  std::thread thread_;
  std::atomic<bool> running_{false};
  std::exception_ptr error_;  // of the thread
};

}  // namespace shale::comm
