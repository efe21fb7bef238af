#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "shale/comm/checkpoint/shard.h"

namespace shale {

// Writes one rank's file of a checkpoint from memory that already has the file's layout. A few
// threads write with direct I/O, without another copy, and compute the checksums. Writing may start
// while the memory is still being filled:
//
//   ShardImage image(plan, memory);
//   one thread:      copy parts[plan.order[i]] to image.data(i), in this order, and call filled()
//   another thread:  record = image.write(folder);  // for add_shard, on the rank that commits
class ShardImage {
 public:
  // The plan and the memory must outlive the image. memory: bytes_for(), aligned to
  // kDirectAlignment.
  ShardImage(const ShardPlan& plan, std::byte* memory);
  static int64_t bytes_for(const ShardPlan& plan) { return plan.file().bytes; }

  std::byte* data(size_t i) const { return memory_ + plan_.begins[i]; }

  // Tells write() that the file's bytes before `end` are complete and will not change.
  void filled(int64_t end);
  void cancel();  // makes write() throw InternalError instead of finishing

  // Creates the plan's file in the existing folder, reserves its disk space, and writes and syncs
  // it. Returns the record for add_shard. The file's name survives a crash only after
  // CheckpointFolder::commit. Throws DiskError if the disk fails.
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
