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

class Context;

// Purpose of a block of device memory.
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

// Memory use in bytes. at_peak: bytes by tag at the time when their sum was highest.
struct MemoryStats {
  std::array<int64_t, kMemoryTags> current{};
  std::array<int64_t, kMemoryTags> at_peak{};
  int64_t allocated = 0;       // sum of `current` over all tags
  int64_t peak_allocated = 0;  // sum of at_peak over all tags
  int64_t reserved = 0;        // bytes obtained from the memory providers, including free blocks
  int64_t peak_reserved = 0;
  int64_t budget = 0;  // maximum of `reserved`; 0: no limit
};

// Observer of an allocator, for plans and tools. It is called under the allocator's lock, so it
// must neither throw nor call the allocator.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  // `block` identifies the allocation until freed(); bytes: its size after rounding.
  virtual void allocated(const void* block, int64_t bytes, MemoryTag tag,
                         std::string_view what) = 0;
  virtual void freed(const void* block) = 0;
};

// A caching allocator. It takes memory from the providers in large segments, cuts them into blocks,
// and returns freed blocks to a pool instead of the system. The stream that owned a freed block can
// reuse it immediately. If other streams used the block, it can be reused only after their work is
// done. Thread-safe.
class CachingAllocator {
 public:
  struct Block;

  // budget_bytes limits the reserved memory on every device, including the CPU; 0: no limit. `name`
  // names this memory in tables and messages; default: the device's name.
  CachingAllocator(DeviceBackend& backend, int64_t budget_bytes, std::string name = {});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns at least `bytes` bytes, aligned to 512, for work on `stream`. When the budget or the
  // device is exhausted, it waits for blocks that other streams still use and gives back cached
  // memory. If that is not enough, it throws OutOfMemoryError with the summary and with `what`,
  // which names the requester.
  Block* allocate(int64_t bytes, MemoryTag tag, void* stream, std::string_view what);
  void free(Block* block) noexcept;
  static void* data(const Block* block);

  // Records that work already queued on `stream` also uses `block`.
  void record_stream(Block* block, void* stream);
  // Forgets a stream that will be destroyed. All its work must be done.
  void forget_stream(void* stream);

  // Makes later blocks of this tag come from `provider`; null: from the device's own memory. The
  // provider must outlive its blocks. It must also live until the allocator is destroyed or this
  // function is called again.
  void set_provider(MemoryTag tag, MemoryProvider* provider);

  // Sets the observer; null removes it. It must live until the allocator is destroyed or this
  // function is called again.
  void set_observer(AllocationObserver* observer);

  // Gives segments in which no block is used back to their providers. Waits for freed blocks that
  // other streams still use.
  void release_cached();

  // ---- For graph capture (runtime/tensor/graph.h), where addresses must not change ----

  // Makes a private pool. Its segments serve no other pool, and are kept until release_pool(), even
  // while they are free.
  uint64_t make_pool() { return ++pools_made_; }
  // Makes later blocks come from the given pool; 0: from the common pool. Returns the previous
  // pool.
  uint64_t use_pool(uint64_t pool);
  void release_pool(uint64_t pool);
  // Call before a capture. Waits for blocks that other streams still use. Until end_capture() no
  // memory is given back to providers, and freed blocks that other streams use are not reused.
  void begin_capture();
  void end_capture();

  MemoryStats stats() const;
  void reset_peak();
  std::string memory_summary() const;  // returns a readable table

 private:
  struct Segment;
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const;
    bool operator()(const Block* block, int64_t size) const;
  };
  // Key of a pool of free blocks. Blocks of different keys are never exchanged.
  struct PoolKey {
    void* stream;
    MemoryProvider* provider;
    uint64_t pool;  // number from make_pool(); 0: the common pool
    auto operator<=>(const PoolKey&) const = default;
  };
  using Pool = std::set<Block*, BySize>;

  Block* take_free(const PoolKey& key, int64_t size);
  Block* grow(const PoolKey& key, int64_t size, int64_t asked, std::string_view what);
  void split(Block* block, int64_t size);
  void wait_for_streams(Block* block);
  void return_to_pool(Block* block);
  Block* absorb_next(Block* block);
  void reclaim_pending();   // reclaims the pending blocks whose work is done
  void wait_for_pending();  // waits for all pending blocks, then reclaims them
  void release_cached_locked();
  // Gives segments in which no block is used back to their providers. Does nothing during a
  // capture, and for pools in kept_pools_.
  void give_back_free(const PoolKey& key, Pool& pool);
  std::string summary_locked() const;

  DeviceBackend& backend_;
  std::string name_;
  std::array<MemoryProvider*, kMemoryTags> providers_{};
  AllocationObserver* observer_ = nullptr;
  int64_t segments_made_ = 0;
  std::map<PoolKey, Pool> pools_;
  std::map<Segment*, std::unique_ptr<Segment>> segments_;
  std::vector<Block*> pending_;   // freed blocks that other streams may still use
  std::vector<Block*> captured_;  // blocks freed during a capture that other streams may still use
  bool capturing_ = false;
  uint64_t pools_made_ = 0;
  uint64_t pool_ = 0;              // pool for new blocks
  std::set<uint64_t> kept_pools_;  // pools whose segments are not given back
  MemoryStats stats_;
  mutable std::mutex mutex_;
};

// The device of a Context and its memory. Tensors share ownership, so that a tensor that outlives
// its context can still free its memory.
struct DeviceMemory {
  DeviceMemory(std::unique_ptr<DeviceBackend> device, int64_t budget_bytes, const std::string& name)
      : backend(std::move(device)),
        stream(backend->create_stream()),
        allocator(*backend, budget_bytes, name) {}
  ~DeviceMemory() { backend->destroy_stream(stream); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::unique_ptr<DeviceBackend> backend;
  void* stream;  // the compute stream
  CachingAllocator allocator;
  Context* context = nullptr;  // null: the context has ended
};

}  // namespace shale
