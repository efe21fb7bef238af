#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "shale/comm/node/shared_segment.h"
#include "shale/runtime/tensor/memory_provider.h"

namespace shale::comm {

// Where a buffer lies, for a peer. Plain data; generation 0 means that peers cannot reach it.
struct MemoryRef {
  SegmentAddress segment;
  uint32_t slot = 0;
  uint32_t generation = 0;
  uint64_t offset = 0;

  bool shared() const { return generation != 0; }
};

// The memory of this process that peers on the node can map, and this process's maps of theirs.
//
// A peer maps a segment when it first meets it and keeps the map. Segments are numbered by the
// lowest free slot and a generation; a new segment in a slot replaces the map of the old one, so
// that stale maps are few. They hold no memory, because free() discards the pages themselves.
class SharedMemory final : public MemoryProvider {
 public:
  void* allocate(size_t bytes) override;
  // While collectives are queued or running, memory is given back only after the last of them: an
  // exception may unwind past buffers that peers are still writing to.
  void free(void* memory, size_t bytes) noexcept override;

  MemoryRef find(const void* memory, int64_t bytes) const;
  // The address of a peer's buffer in this process. Throws CommError if it cannot be mapped.
  void* map(const MemoryRef& ref);

  void begin_use();
  void end_use() noexcept;
  // After a collective on this buffer has failed: peers may write to it whenever they get there, so
  // its segment stays until the process ends.
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
  std::vector<Segment> own_;                                   // by slot
  std::map<std::pair<int32_t, uint32_t>, PeerSegment> peers_;  // by process and slot
  std::vector<const void*> deferred_;
  uint32_t generations_ = 0;
  int users_ = 0;
};

}  // namespace shale::comm
