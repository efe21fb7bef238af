#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/tensor/device_backend.h"

namespace shale {

// What a block of device memory is for.
enum class MemoryTag : uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kActivation,
  kWorkspace,
  kComm,
  kData,
};
inline constexpr int kMemoryTags = 7;
std::string_view memory_tag_name(MemoryTag tag);

// Bytes by tag. `at_peak` is how the blocks were divided when their sum was highest.
struct MemoryStats {
  std::array<int64_t, kMemoryTags> current{};
  std::array<int64_t, kMemoryTags> at_peak{};
  int64_t allocated = 0;       // sum of current
  int64_t peak_allocated = 0;  // sum of at_peak
  int64_t reserved = 0;        // held from the memory providers, free blocks included
  int64_t peak_reserved = 0;
  int64_t budget = 0;  // 0: none
};

// Looks on while an allocator works, under its lock: may neither throw nor call it. For plans and
// tools.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  // `block` stands for the allocation up to freed(); bytes: what it takes, rounding included.
  virtual void allocated(const void* block, int64_t bytes, MemoryTag tag,
                         std::string_view what) = 0;
  virtual void freed(const void* block) = 0;
};

// A caching allocator: memory comes from the providers in large segments, is cut into blocks, and
// goes back to a pool rather than to the system. A freed block is reused at once by the stream that
// owned it; if other streams used it, when their work is done. Thread-safe.
class CachingAllocator {
 public:
  struct Block;

  // budget_bytes bounds what is reserved, on every device, the CPU too; 0 means no bound. `name` is
  // the memory's in tables and messages, by default the device's.
  CachingAllocator(DeviceBackend& backend, int64_t budget_bytes, std::string name = {});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // At least `bytes` bytes, aligned to 512, for work on `stream`. `what` names the asker in the
  // error. When the budget or the device is exhausted it waits for blocks that other streams still
  // use, gives back what is cached, and then throws OutOfMemoryError with the summary.
  Block* allocate(int64_t bytes, MemoryTag tag, void* stream, std::string_view what);
  void free(Block* block) noexcept;
  static void* data(const Block* block);

  // `block` is also used by work already queued on `stream`.
  void record_stream(Block* block, void* stream);
  // `stream` goes away; all its work is done.
  void forget_stream(void* stream);

  // Blocks of this tag come from `provider` from now on; null: the device's own memory. The
  // provider must outlive the allocator or the next call of this function and its blocks.
  void set_provider(MemoryTag tag, MemoryProvider* provider);

  // From now on; null: nobody any more. Outlives the allocator or the next call.
  void set_observer(AllocationObserver* observer);

  // Gives segments without blocks in use back to their providers; waits for what is still used.
  void release_cached();

  // ---- For captured work (runtime/tensor/graph.h), whose addresses stay what they were ----

  // A pool of its own, whose segments serve nobody else and are kept, also while they are free, up
  // to release_pool().
  uint64_t make_pool() { return ++pools_made_; }
  // Blocks come from that pool from now on; 0: from the common one. Returns the one before.
  uint64_t use_pool(uint64_t pool);
  void release_pool(uint64_t pool);
  // Before the capture: waits for blocks that other streams still use. Up to end_capture() nothing
  // is given back, and blocks that other streams use come back no earlier than then.
  void begin_capture();
  void end_capture();

  MemoryStats stats() const;
  void reset_peak();
  std::string memory_summary() const;  // a table, for people

 private:
  struct Segment;
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const;
    bool operator()(const Block* block, int64_t size) const;
  };
  // Free blocks of one stream and provider, smallest first.
  struct PoolKey {
    void* stream;
    MemoryProvider* provider;
    uint64_t pool;  // of make_pool(); 0: the common one
    auto operator<=>(const PoolKey&) const = default;
  };
  using Pool = std::set<Block*, BySize>;

  Block* take_free(const PoolKey& key, int64_t size);
  Block* grow(const PoolKey& key, int64_t size, int64_t asked, std::string_view what);
  void split(Block* block, int64_t size);
  void wait_for_streams(Block* block);
  void return_to_pool(Block* block);
  Block* absorb_next(Block* block);
  void reclaim_pending();   // of those whose work is done
  void wait_for_pending();  // and reclaims them all
  void release_cached_locked();
  std::string summary_locked() const;

  DeviceBackend& backend_;
  std::string name_;
  std::array<MemoryProvider*, kMemoryTags> providers_{};
  AllocationObserver* observer_ = nullptr;
  int64_t segments_made_ = 0;
  std::map<PoolKey, Pool> pools_;
  std::map<Segment*, std::unique_ptr<Segment>> segments_;
  std::vector<Block*> pending_;   // freed, but other streams may still use them
  std::vector<Block*> captured_;  // such blocks, freed during the capture
  bool capturing_ = false;
  uint64_t pools_made_ = 0;
  uint64_t pool_ = 0;              // where blocks come from
  std::set<uint64_t> kept_pools_;  // whose segments are not given back
  MemoryStats stats_;
  mutable std::mutex mutex_;
};

}  // namespace shale
