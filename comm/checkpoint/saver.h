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

// Data to save besides the tensors. Only rank 0's is used.
struct CheckpointInfo {
  int64_t step = 0;           // optimizer steps done
  std::string state = "{}";   // a JSON object: progress of the run
  std::string config = "{}";  // a JSON object: configuration of the run
  CheckpointFolder::Attachments attachments = {};
};

// Which checkpoints to keep, and callbacks.
struct CheckpointSaverOptions {
  int64_t keep = 0;  // number of newest checkpoints to keep; 0: all
  // Returns true for an older step that must be kept too; null: none. Called on the writing thread.
  std::function<bool(int64_t step)> spares = {};
  // True: all hosts share the folder, and rank 0 commits. False: each host has its own folder, with
  // the files of its own ranks and the whole manifest; rank 0 and one rank of each host commit.
  bool is_shared = true;
  bool commits = false;  // this rank commits; not used if is_shared
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

// Progress of this rank's saves: number of finished phases, and number of the phase that failed, 0
// if none did. A later save has higher phase numbers than an earlier one.
struct SaveProgress {
  int64_t finished = 0;
  int64_t failed = 0;
};

// Cost of a save on this rank, for reports.
struct CheckpointCost {
  int64_t bytes = 0;   // bytes that this rank wrote
  double copy_s = 0;   // time of the copy to host memory, while training waits
  double write_s = 0;  // time from the first copied byte until the disk confirmed the write
};

// Saves the training state of a group's ranks while training continues. save() copies the part that
// this rank writes to host memory and returns. Threads write it to disk, starting while the copy
// still runs. Once all ranks have written their files, rank 0 commits the checkpoint
// (comm/checkpoint/folder.h). poll() tells all ranks between steps that this has happened.
// advance() does the same for callers that exchange progress() themselves. The saver never
// communicates at the same time as training.
//
// A checkpoint exists when poll(), advance() or finish() has returned its step. If a rank fails
// before, that call throws the error on all ranks, and earlier checkpoints stay as they were. If a
// rank dies, the next run removes the incomplete folder.
class CheckpointSaver {
 public:
  // `folder`: checkpoints/ of the run. The group and the context must outlive the saver.
  CheckpointSaver(ProcessGroup& group, Context& context, std::string folder,
                  const CheckpointSaverOptions& options);
  ~CheckpointSaver();  // abandons an uncommitted save
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Call before the first step. Checks that a manifest can describe the state, and allocates the
  // host memory that this rank's part is copied to. Throws ConfigError, on all ranks, if the state
  // has too many parts; OutOfMemoryError if the ranks of a host need more memory than it has.
  // Collective.
  void check(const std::vector<StatePart>& share);

  // Starts a save. `share`: the parts that this rank writes (share_to_write); the caller may change
  // their tensors after the return. First waits for the previous save, and returns its step if
  // poll() has not yet returned it. Collective.
  std::optional<int64_t> save(const CheckpointInfo& info, const std::vector<StatePart>& share);
  // Call it between steps while a save is in flight. Returns the step once it is committed. Never
  // waits for the disk. Collective.
  std::optional<int64_t> poll();
  // The two halves of poll(), for callers that exchange other data at the same time. progress()
  // returns the values of this rank. advance() takes the minimum of `finished` and the maximum of
  // `failed` over all ranks; older values are allowed. advance() is collective; it returns at once
  // if nothing has changed.
  SaveProgress progress() const;
  std::optional<int64_t> advance(const SaveProgress& all);
  // Waits until no save is in flight. Returns what poll() returns. Collective.
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
  std::string nonce_;               // suffix of the temporary folder's name
  std::unique_ptr<Staged> staged_;  // host memory, kept between saves
  std::string report_;              // record of this rank's file, sent to ranks that commit
  std::set<int64_t> known_sound_;   // steps that this process has committed or checked
  std::thread thread_;
  std::atomic<bool> running_{false};
  std::exception_ptr error_;  // exception of the writing thread
};

}  // namespace shale::comm
