#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "shale/comm/checkpoint/shard.h"

namespace shale {

// Writes one rank's file of a checkpoint out of memory in which its bytes lie as they will in the
// file: past the system's cache and without another copy, by a few threads, which take the
// checksums too. They may begin while the bytes are still being put there:
//
//   ShardImage image(plan, memory);
//   on one thread:   copy parts[plan.order[i]] to image.data(i), in this order, and tell filled()
//   on another one:  record = image.write(folder);  // for add_shard, on the rank that commits
class ShardImage {
 public:
  // The plan, and bytes_for() of memory at a multiple of kDirectAlignment, outlive this.
  ShardImage(const ShardPlan& plan, std::byte* memory);
  static int64_t bytes_for(const ShardPlan& plan) { return plan.file().bytes; }

  std::byte* data(size_t i) const { return memory_ + plan_.begins[i]; }

  // The file's bytes before `end` are there, and do not change any more.
  void filled(int64_t end);
  void cancel();  // lets write() throw InternalError instead of finishing

  // Makes the plan's file in the existing folder, reserves its room on the disk, writes and syncs
  // it; its name is on the disk only after CheckpointFolder::commit. Throws DiskError where the
  // disk fails.
  std::string write(const std::string& folder);

 private:
  void wait_until_filled(int64_t end);

  const ShardPlan& plan_;
  std::byte* const memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t filled_ = 0;
  bool is_cancelled_ = false;
};

}  // namespace shale
