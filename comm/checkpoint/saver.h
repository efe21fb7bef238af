#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
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

// Saved data besides tensors; only that of rank 0 is used.
struct CheckpointInfo {
  int64_t step = 0;           // optimizer steps done
  std::string state = "{}";   // a JSON object: progress of the run
  std::string config = "{}";  // a JSON object: configuration of the run
  CheckpointFolder::Attachments attachments = {};
};

// Retention of checkpoints, and callbacks.
struct CheckpointSaverOptions {
  int64_t keep = 0;  // number of newest checkpoints to keep; 0: all
  // Returns true for older steps to keep too. Called on the writing thread; null: none.
  std::function<bool(int64_t step)> spares = {};
  // True: all hosts share the folder, and rank 0 commits. False: each host has its own folder, with
  // its ranks' files and the whole manifest; rank 0 and one rank of each host commit there.
  bool is_shared = true;
  bool commits = false;  // with !is_shared: this rank commits
  // For tests: pretended available memory of this host, in bytes; empty: ask the system.
  std::optional<int64_t> available_memory = {};
  // Called on ranks that commit, on the writing thread, before each commit: syncs other files that
  // must be on disk with the checkpoint. If it throws, the save fails.
  std::function<void()> before_commit = {};
  // Called on ranks that commit, on the writing thread, after each commit, with the step. It may
  // wait for the disk. Its exceptions are logged.
  std::function<void(int64_t step)> committed = {};
  Timeline* timeline = nullptr;  // records the threads' work as a track "checkpoint"; null: off
};

// Progress of this rank in its saves: number of finished phases, and number of the phase that
// failed, 0: none. Phase numbers increase from save to save, so phases cannot be confused.
struct SaveProgress {
  int64_t finished = 0;
  int64_t failed = 0;
};

// Cost of a save on this rank, for reports.
struct CheckpointCost {
  int64_t bytes = 0;   // written by this rank
  double copy_s = 0;   // time of the copy to host memory, while training waits
  double write_s = 0;  // time from the first copied byte until the disk confirmed the write
};

// Saves the training state of the ranks of a group while they continue training. save() copies this
// rank's share to host memory and returns; threads write it, starting with what is already copied,
// and sync it to disk; rank 0 commits (comm/checkpoint/folder.h) once all ranks have written their
// shares. The ranks learn between steps that all have written: in poll(), or in advance() if they
// exchange progress() in other ways. The saver never communicates concurrently with training.
//
// A checkpoint exists when poll(), advance() or finish() has returned its step. If a rank fails
// before, that call throws the error on all ranks, and earlier checkpoints stay as they were. If a
// rank dies, the next run removes the incomplete folder.
class CheckpointSaver {
 public:
  // `folder` exists: the run's checkpoints/. Group and context outlive this.
  CheckpointSaver(ProcessGroup& group, Context& context, std::string folder,
                  const CheckpointSaverOptions& options);
  ~CheckpointSaver();  // abandons an uncommitted save
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Checks, before the first step, that a manifest can describe the state, and reserves the host
  // memory that this rank's part is copied to. Throws ConfigError, on all ranks, if the state has
  // too many parts; OutOfMemoryError if the ranks of a host need more memory than it has.
  // Collective.
  void check(const std::vector<StatePart>& share);

  // Starts a save. `share`: the parts that this rank writes (share_to_write); their tensors may
  // change afterwards. Waits for the previous save, and returns its step if it was committed only
  // now. Collective.
  std::optional<int64_t> save(const CheckpointInfo& info, const std::vector<StatePart>& share);
  // Call between steps while a save is in flight; collective. Returns the step once it has been
  // committed. Never waits for the disk.
  std::optional<int64_t> poll();
  // Two halves of poll(), for callers that exchange other data too. progress() returns this rank's
  // values. advance() takes the minimum of `finished` and the maximum of `failed` over all ranks,
  // which may be outdated; it is collective, and does nothing if nothing is due.
  SaveProgress progress() const;
  std::optional<int64_t> advance(const SaveProgress& all);
  // Waits until no save is in flight, otherwise like poll(). Collective.
  std::optional<int64_t> finish();
  bool in_flight() const { return phase_ != Phase::kIdle; }

  // Cost of the last save; write_s is valid once it has been committed.
  const CheckpointCost& cost() const { return cost_; }

 private:
  struct Staged;
  enum class Phase { kIdle, kWriting, kCommitting };

  bool commits() const { return options_.is_shared ? group_.rank() == 0 : options_.commits; }
  void begin();
  void reserve_memory(const std::vector<StatePart>& share);
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
  int64_t phases_ = 0;  // number of phases started
  CheckpointInfo info_;
  std::string nonce_;               // suffix of the folder's name, until the commit
  std::unique_ptr<Staged> staged_;  // host memory, kept between saves
  std::string report_;              // this rank's record, for ranks that commit
  std::set<int64_t> known_sound_;   // checkpoints that were committed or checked here
  std::thread thread_;
  std::atomic<bool> running_{false};
  std::exception_ptr error_;  // exception of the writing thread
};

}  // namespace shale::comm
