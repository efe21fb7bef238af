#include "shale/runtime/tensor/allocator.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <list>
#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/foreign_memory.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace shale {
namespace {

constexpr int64_t kAlignment = 512;
// maximum bytes of a small request; small requests share segments
constexpr int64_t kSmall = int64_t{1} << 20;
constexpr int64_t kSmallSegment = int64_t{2} << 20;
constexpr int64_t kSegmentRounding = int64_t{2} << 20;  // size of a huge page
constexpr int64_t kLargestRemainderKept = int64_t{1} << 20;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

struct CachingAllocator::Block {
  Segment* segment = nullptr;
  PoolKey key{};
  int64_t offset = 0;
  int64_t size = 0;
  bool in_use = false;
  MemoryTag tag{};
  std::list<Block>::iterator self{};  // position in the segment's list, sorted by offset
  std::set<void*> other_streams{};
  std::vector<void*> events{};      // events after which other streams no longer use the block
  std::function<void()> release{};  // releases adopted memory; such a block is alone in its segment

  static Block* of_foreign_memory(void* memory, int64_t bytes, void* stream,
                                  std::function<void()> release);
  static void give_back(Block* block, DeviceBackend& backend) noexcept;
};

struct CachingAllocator::Segment {
  // Number of the segment in the order of creation. It decides between blocks of equal size. So the
  // choice is the same in every run and does not depend on addresses.
  int64_t number = 0;
  MemoryProvider* provider = nullptr;
  void* memory = nullptr;
  int64_t bytes = 0;
  bool small = false;  // true: the segment serves small requests only
  std::list<Block> blocks{};

  Block* insert(std::list<Block>::iterator before, const Block& block) {
    const auto it = blocks.insert(before, block);
    it->self = it;
    return &*it;
  }
};

CachingAllocator::Block* CachingAllocator::Block::of_foreign_memory(void* memory, int64_t bytes,
                                                                    void* stream,
                                                                    std::function<void()> release) {
  auto segment = std::make_unique<Segment>();
  segment->memory = memory;
  segment->bytes = bytes;
  Block* block = segment->insert(segment->blocks.end(),
                                 {.segment = segment.get(),
                                  .key = {.stream = stream, .provider = nullptr, .pool = 0},
                                  .size = bytes,
                                  .in_use = true});
  block->release = std::move(release);
  segment.release();  // from now on the block owns the segment; give_back() deletes it
  return block;
}

// Returns adopted memory to its owner. Waits for the stream first, because the owner may change the
// memory immediately.
void CachingAllocator::Block::give_back(Block* block, DeviceBackend& backend) noexcept {
  const std::unique_ptr<Segment> segment(block->segment);
  const std::function<void()> release = std::move(block->release);
  try {
    backend.synchronize(block->key.stream);
    for (void* stream : block->other_streams) backend.synchronize(stream);
  } catch (const std::exception& error) {
    // The device is lost, so nothing uses the memory any more.
    log_warning("memory: ", error.what());
  }
  release();
}

std::shared_ptr<Storage> adopt_memory(Context& context, void* memory, int64_t bytes,
                                      std::function<void()> release) {
  auto* block = CachingAllocator::Block::of_foreign_memory(memory, bytes, context.exec().stream,
                                                           std::move(release));
  return std::make_shared<Storage>(context.memory(), block, bytes);
}

std::string_view memory_tag_name(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kParameter: return "parameters";
    case MemoryTag::kGradient: return "gradients";
    case MemoryTag::kOptimizer: return "optimizer";
    case MemoryTag::kActivation: return "activations";
    case MemoryTag::kWorkspace: return "workspace";
    case MemoryTag::kComm: return "communication";
    case MemoryTag::kData: return "data";
  }
  return "unknown";
}

bool CachingAllocator::BySize::operator()(const Block* a, const Block* b) const {
  return std::tuple(a->size, a->segment->number, a->offset) <
         std::tuple(b->size, b->segment->number, b->offset);
}

bool CachingAllocator::BySize::operator()(const Block* block, int64_t size) const {
  return block->size < size;
}

CachingAllocator::CachingAllocator(DeviceBackend& backend, int64_t budget_bytes, std::string name)
    : backend_(backend), name_(name.empty() ? to_string(backend.device()) : std::move(name)) {
  stats_.budget = budget_bytes;
}

CachingAllocator::~CachingAllocator() {
  const std::lock_guard lock(mutex_);
  try {
    wait_for_pending();
  } catch (const std::exception& error) {
    // The device is lost, so nothing uses the memory any more.
    log_warning("memory: ", error.what());
  }
  release_cached_locked();
}

void* CachingAllocator::data(const Block* block) {
  return static_cast<std::byte*>(block->segment->memory) + block->offset;
}

CachingAllocator::Block* CachingAllocator::allocate(int64_t bytes, MemoryTag tag, void* stream,
                                                    std::string_view what) {
  const std::lock_guard lock(mutex_);
  reclaim_pending();
  MemoryProvider* provider = providers_[static_cast<size_t>(tag)];
  const PoolKey key{stream, provider != nullptr ? provider : &backend_.memory(), pool_};
  const int64_t size =
      round_up(std::max<int64_t>(bytes, 1), key.provider->is_exact() ? 1 : kAlignment);
  Block* block = take_free(key, size);
  if (block == nullptr) block = grow(key, size, bytes, what);
  split(block, size);
  block->in_use = true;
  block->tag = tag;
  stats_.current[static_cast<size_t>(tag)] += block->size;
  stats_.allocated += block->size;
  if (stats_.allocated > stats_.peak_allocated) {
    stats_.peak_allocated = stats_.allocated;
    stats_.at_peak = stats_.current;
  }
  if (observer_ != nullptr) observer_->allocated(block, block->size, tag, what);
  return block;
}

// Returns the smallest free block that fits. A small request never splits a large segment, because
// a small block would keep the whole segment in use.
CachingAllocator::Block* CachingAllocator::take_free(const PoolKey& key, int64_t size) {
  Pool& pool = pools_[key];
  const auto it = std::find_if(pool.lower_bound(size), pool.end(), [&](const Block* block) {
    return block->segment->small == (size <= kSmall) &&
           (block->size == size || !key.provider->is_exact());
  });
  if (it == pool.end()) return nullptr;
  Block* block = *it;
  pool.erase(it);
  return block;
}

CachingAllocator::Block* CachingAllocator::grow(const PoolKey& key, int64_t size, int64_t asked,
                                                std::string_view what) {
  int64_t bytes = size <= kSmall ? kSmallSegment : round_up(size, kSegmentRounding);
  if (key.provider->is_exact()) bytes = size;
  const auto fits = [&] { return stats_.budget == 0 || stats_.reserved + bytes <= stats_.budget; };
  if (!fits() && !pending_.empty()) {
    wait_for_pending();
    if (Block* block = take_free(key, size); block != nullptr) return block;
  }
  if (!fits()) release_cached_locked();
  // takes the exact size if the rounded one exceeds the budget
  if (!fits() && size > kSmall) bytes = size;
  const auto out_of_memory = [this](const std::string& problem) {
    std::string table = summary_locked();
    table.pop_back();  // removes the table's last line break
    // The table is indented, because only indented lines belong to the message (base/failure.h).
    return DeviceOutOfMemory(cat(problem, "\n  ", table), backend_.device(), stats_.budget,
                             stats_.reserved);
  };
  if (!fits()) {
    throw out_of_memory(
        cat("memory: ", what, " needs ", format_bytes(double(asked)), ", but only ",
            format_bytes(double(std::max<int64_t>(0, stats_.budget - stats_.reserved))), " of the ",
            format_bytes(double(stats_.budget)), " budget of ", name_, " are free"));
  }
  void* memory = nullptr;
  try {
    memory = key.provider->allocate(static_cast<size_t>(bytes));
  } catch (const OutOfMemoryError&) {
    wait_for_pending();
    release_cached_locked();
    try {
      memory = key.provider->allocate(static_cast<size_t>(bytes));
    } catch (const OutOfMemoryError& error) {
      throw out_of_memory(cat(error.what(), " (requested by ", what, ")"));
    }
  }
  auto owned = std::make_unique<Segment>();
  Segment* segment = owned.get();
  segment->number = segments_made_++;
  segment->provider = key.provider;
  segment->memory = memory;
  segment->bytes = bytes;
  segment->small = size <= kSmall;
  Block* block = segment->insert(segment->blocks.end(),
                                 {.segment = segment, .key = key, .offset = 0, .size = bytes});
  segments_.emplace(segment, std::move(owned));
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  return block;
}

void CachingAllocator::split(Block* block, int64_t size) {
  const int64_t rest = block->size - size;
  if (rest < (block->segment->small ? kAlignment : kLargestRemainderKept)) return;
  Block* tail = block->segment->insert(
      std::next(block->self),
      {.segment = block->segment, .key = block->key, .offset = block->offset + size, .size = rest});
  block->size = size;
  pools_[tail->key].insert(tail);
}

void CachingAllocator::free(Block* block) noexcept {
  if (block->release != nullptr) return Block::give_back(block, backend_);
  const std::lock_guard lock(mutex_);
  if (observer_ != nullptr) observer_->freed(block);
  block->in_use = false;
  stats_.current[static_cast<size_t>(block->tag)] -= block->size;
  stats_.allocated -= block->size;
  if (block->other_streams.empty()) {
    return_to_pool(block);
  } else if (capturing_) {
    // an event recorded now would become part of the capture and never complete
    captured_.push_back(block);
  } else {
    wait_for_streams(block);
  }
}

void CachingAllocator::wait_for_streams(Block* block) {
  for (void* stream : block->other_streams) block->events.push_back(backend_.record_event(stream));
  block->other_streams.clear();
  pending_.push_back(block);
}

void CachingAllocator::record_stream(Block* block, void* stream) {
  const std::lock_guard lock(mutex_);
  if (stream != block->key.stream) block->other_streams.insert(stream);
}

void CachingAllocator::forget_stream(void* stream) {
  const std::lock_guard lock(mutex_);
  reclaim_pending();
  for (auto& [key, segment] : segments_) {
    for (Block& block : segment->blocks) block.other_streams.erase(stream);
  }
}

void CachingAllocator::reclaim_pending() {
  if (capturing_) return;  // events cannot be queried during a capture
  std::erase_if(pending_, [this](Block* block) {
    std::erase_if(block->events, [this](void* event) {
      const bool done = backend_.event_done(event);
      if (done) backend_.destroy_event(event);
      return done;
    });
    if (!block->events.empty()) return false;
    return_to_pool(block);
    return true;
  });
}

void CachingAllocator::wait_for_pending() {
  for (Block* block : pending_) {
    for (void* event : block->events) backend_.synchronize_event(event);
  }
  reclaim_pending();
}

void CachingAllocator::return_to_pool(Block* block) {
  std::list<Block>& blocks = block->segment->blocks;
  Pool& pool = pools_[block->key];
  // Only a block in the pool can be merged; a pending block cannot.
  const auto next = std::next(block->self);
  if (next != blocks.end() && pool.erase(&*next) == 1) absorb_next(block);
  if (block->self != blocks.begin() && pool.erase(&*std::prev(block->self)) == 1) {
    block = absorb_next(&*std::prev(block->self));
  }
  pool.insert(block);
  if (block->key.provider->is_exact()) give_back_free(block->key, pool);
}

CachingAllocator::Block* CachingAllocator::absorb_next(Block* block) {
  const auto next = std::next(block->self);
  block->size += next->size;
  block->segment->blocks.erase(next);
  return block;
}

void CachingAllocator::set_provider(MemoryTag tag, MemoryProvider* provider) {
  const std::lock_guard lock(mutex_);
  providers_[static_cast<size_t>(tag)] = provider;
  release_cached_locked();  // frees the cached blocks of the previous provider
}

void CachingAllocator::set_observer(AllocationObserver* observer) {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

void CachingAllocator::release_cached() {
  const std::lock_guard lock(mutex_);
  wait_for_pending();
  release_cached_locked();
}

void CachingAllocator::release_cached_locked() {
  for (auto& [key, pool] : pools_) give_back_free(key, pool);
}

void CachingAllocator::give_back_free(const PoolKey& key, Pool& pool) {
  // Giving memory back waits for the device, which is not allowed during a capture.
  if (capturing_ || kept_pools_.contains(key.pool)) return;
  std::erase_if(pool, [this](Block* block) {
    Segment* segment = block->segment;
    if (block->size != segment->bytes) return false;
    segment->provider->free(segment->memory, static_cast<size_t>(segment->bytes));
    stats_.reserved -= segment->bytes;
    segments_.erase(segment);
    return true;
  });
}

uint64_t CachingAllocator::use_pool(uint64_t pool) {
  const std::lock_guard lock(mutex_);
  if (pool != 0) kept_pools_.insert(pool);
  return std::exchange(pool_, pool);
}

void CachingAllocator::release_pool(uint64_t pool) {
  const std::lock_guard lock(mutex_);
  kept_pools_.erase(pool);
  wait_for_pending();
  release_cached_locked();
}

void CachingAllocator::begin_capture() {
  const std::lock_guard lock(mutex_);
  wait_for_pending();
  capturing_ = true;
}

void CachingAllocator::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = false;
  for (Block* block : std::exchange(captured_, {})) wait_for_streams(block);
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_allocated = stats_.allocated;
  stats_.at_peak = stats_.current;
  stats_.peak_reserved = stats_.reserved;
}

std::string CachingAllocator::memory_summary() const {
  const std::lock_guard lock(mutex_);
  return summary_locked();
}

std::string CachingAllocator::summary_locked() const {
  const auto row = [](std::string_view name, int64_t now, int64_t peak) {
    char line[96];
    std::snprintf(line, sizeof(line), "  %-16.*s %12s %12s\n", int(name.size()), name.data(),
                  format_bytes(double(now)).c_str(), format_bytes(double(peak)).c_str());
    return std::string(line);
  };
  std::string text = cat("memory of ", name_, "          now      at peak\n");
  for (int i = 0; i < kMemoryTags; ++i) {
    const auto tag = static_cast<size_t>(i);
    if (stats_.at_peak[tag] == 0 && stats_.current[tag] == 0) continue;
    text += row(memory_tag_name(MemoryTag(i)), stats_.current[tag], stats_.at_peak[tag]);
  }
  text += row("sum of parts", stats_.allocated, stats_.peak_allocated);
  text += row("reserved", stats_.reserved, stats_.peak_reserved);
  text += row("reserved, free", stats_.reserved - stats_.allocated,
              stats_.peak_reserved - stats_.peak_allocated);
  int64_t largest = 0;
  for (const auto& [key, pool] : pools_) {
    if (!pool.empty()) largest = std::max(largest, (*pool.rbegin())->size);
  }
  text += cat("  largest free block ", format_bytes(double(largest)), "\n");
  if (stats_.budget > 0) text += cat("  budget ", format_bytes(double(stats_.budget)), "\n");
  return text;
}

}  // namespace shale
