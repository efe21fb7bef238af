#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "shale/comm/node/shared_segment.h"
#include "shale/runtime/tensor/memory_provider.h"

namespace shale::comm {

// Location of a buffer, for a peer. Plain data; generation 0: peers cannot map it.
struct MemoryRef {
  SegmentAddress segment;
  uint32_t slot = 0;
  uint32_t generation = 0;
  uint64_t offset = 0;

  bool shared() const { return generation != 0; }
};

// Memory of this process that peers on the node can map, and this process's mappings of peers'
// memory.
//
// A peer maps a segment when it first needs it, and keeps the mapping. Each segment has a
// generation, and the lowest slot number that was free. A peer that maps a new segment in a slot
// removes its mapping of the old one, so few outdated mappings remain. They hold no memory, because
// free() discards the pages themselves.
class SharedMemory final : public MemoryProvider {
 public:
  void* allocate(size_t bytes) override;
  // Frees the memory. While collectives are queued or running, it is freed after the last of them:
  // if an exception destroys a buffer, peers may still be writing to it.
  void free(void* memory, size_t bytes) noexcept override;

  MemoryRef find(const void* memory, int64_t bytes) const;
  // Address of a peer's buffer in this process. Throws CommError if it cannot be mapped.
  void* map(const MemoryRef& ref);

  void begin_use();
  void end_use() noexcept;
  // Keeps the buffer's segment until the process ends. Call it for buffers of failed collectives,
  // to which peers may write at any later time.
  void keep(const void* memory) noexcept;

  int64_t allocated_bytes() const;
  int64_t mapped_segments() const;

 private:
  struct Segment {
    SharedSegment memory;
    SegmentAddress address;
    uint32_t generation = 0;
    bool kept = false;
  };
  struct PeerSegment {
    SharedSegment memory;
    uint32_t generation = 0;
  };
  void release(const void* memory) noexcept;
  const Segment* segment_of(const void* memory, int64_t bytes) const;

  const int32_t pid_ = static_cast<int32_t>(getpid());
  mutable std::mutex mutex_;
  std::vector<Segment> own_;                                   // this process's segments by slot
  std::map<std::pair<int32_t, uint32_t>, PeerSegment> peers_;  // peers' segments, by process, slot
  std::vector<const void*> deferred_;
  uint32_t generations_ = 0;
  int users_ = 0;
};

}  // namespace shale::comm
