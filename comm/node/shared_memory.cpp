#include "shale/comm/node/shared_memory.h"

#include "shale/base/error.h"

namespace shale::comm {

void* SharedMemory::allocate(size_t bytes) {
  SharedSegment memory = SharedSegment::create(bytes == 0 ? 1 : bytes);
  const std::lock_guard lock(mutex_);
  size_t slot = 0;
  while (slot < own_.size() && own_[slot].memory.data() != nullptr) ++slot;
  if (slot == own_.size()) own_.emplace_back();
  const SegmentAddress address = memory.address();
  own_[slot] = {.memory = std::move(memory), .address = address, .generation = ++generations_};
  return own_[slot].memory.data();
}

void SharedMemory::free(void* memory, size_t) noexcept {
  const std::lock_guard lock(mutex_);
  if (users_ > 0) {
    deferred_.push_back(memory);
  } else {
    release(memory);
  }
}

void SharedMemory::release(const void* memory) noexcept {
  for (Segment& segment : own_) {
    if (segment.memory.data() != memory || segment.kept) continue;
    segment.memory.discard();
    segment = {};
    return;
  }
}

const SharedMemory::Segment* SharedMemory::segment_of(const void* memory, int64_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(memory);
  for (const Segment& segment : own_) {
    const auto* base = static_cast<const std::byte*>(segment.memory.data());
    if (base == nullptr || begin < base || begin + bytes > base + segment.memory.bytes()) continue;
    return &segment;
  }
  return nullptr;
}

MemoryRef SharedMemory::find(const void* memory, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Segment* segment = segment_of(memory, bytes);
  if (segment == nullptr) return {};
  const auto* base = static_cast<const std::byte*>(segment->memory.data());
  return {.segment = segment->address,
          .slot = static_cast<uint32_t>(segment - own_.data()),
          .generation = segment->generation,
          .offset = static_cast<uint64_t>(static_cast<const std::byte*>(memory) - base)};
}

void SharedMemory::keep(const void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const Segment* segment = segment_of(memory, 1);
  if (segment != nullptr) own_[static_cast<size_t>(segment - own_.data())].kept = true;
}

void* SharedMemory::map(const MemoryRef& ref) {
  const std::lock_guard lock(mutex_);
  if (ref.segment.pid == pid_) {
    return static_cast<std::byte*>(own_[ref.slot].memory.data()) + ref.offset;
  }
  PeerSegment& peer = peers_[{ref.segment.pid, ref.slot}];
  if (peer.generation != ref.generation) {
    auto memory = SharedSegment::attach(ref.segment);
    if (!memory) {
      throw CommError(cat("cannot map ", format_bytes(static_cast<double>(ref.segment.bytes)),
                          " of process ", ref.segment.pid, " on this node"));
    }
    peer = {.memory = std::move(*memory), .generation = ref.generation};
  }
  return static_cast<std::byte*>(peer.memory.data()) + ref.offset;
}

void SharedMemory::begin_use() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void SharedMemory::end_use() noexcept {
  const std::lock_guard lock(mutex_);
  if (--users_ > 0) return;
  for (const void* memory : deferred_) release(memory);
  deferred_.clear();
}

int64_t SharedMemory::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const Segment& segment : own_) bytes += static_cast<int64_t>(segment.memory.bytes());
  return bytes;
}

int64_t SharedMemory::mapped_segments() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(peers_.size());
}

}  // namespace shale::comm
