#pragma once

#include <deque>
#include <vector>

#include "shale/kernels/simt/engine/clocks.h"
#include "shale/kernels/simt/engine/run_queue.h"
#include "shale/kernels/simt/engine/site.h"
#include "shale/kernels/simt/engine/tensor_map.h"

namespace shale::emulator {

class Block;
struct Fiber;

// A copy by TMA: a box of an array, or a run of bytes; also a word that a thread sends to a block
// of its cluster.
struct BulkCopy {
  enum class Kind : uint8_t { kBox, kRun, kAdd, kWord };
  Kind kind = Kind::kBox;
  uint32_t offset = 0, bytes = 0;  // in shared memory
  TensorMap map{};                 // of a box
  Coordinates at{};
  std::byte* device = nullptr;  // device memory of a run
  uint32_t word = 0;
};

// Copies to a block's shared memory, by its threads and others of its cluster. The target is
// poisoned when a copy is issued, and filled when no thread of the cluster can run: as late as the
// hardware may do it. The thread order decides which of several lands first.
class BulkLoads {
 public:
  explicit BulkLoads(Block& block) : block_(block) {}
  void reset(Order order, uint64_t seed);
  void issue(Fiber& self, const BulkCopy& copy, void* mbarrier);
  bool land_one();  // false: none is in flight
  bool outstanding() const { return !loads_.empty(); }

 private:
  struct Load {
    BulkCopy copy;
    int mbarrier;
  };
  Block& block_;
  std::vector<Load> loads_{};  // oldest first
  Order order_ = Order::kFifo;
  SeededRandom random_{};
};

// Copies of one thread to device memory. Shared memory is read when the thread waits for the read,
// and device memory is written when the thread waits for the write or ends.
class BulkStores {
 public:
  void issue(Fiber& self, const BulkCopy& copy);
  void commit(Fiber& self);
  void wait(Fiber& self, size_t newest, bool written);
  void finish(Fiber& self);  // at the thread's end; fails if copies were not waited for
  void reset();

 private:
  struct Store {
    BulkCopy copy;
    std::vector<std::byte> data{};  // contents when read
  };
  struct Group {
    std::vector<Store> stores{};
    SyncClock clock{};  // of its reads
  };
  void read(Fiber& self, Group& group);

  std::vector<Store> open_{};   // not yet in a group
  std::deque<Group> groups_{};  // oldest first; the first read_ of them have been read
  size_t read_ = 0;
  int engine_ = -1;  // actor of these copies
};

// Called by kernels, on the current thread.
void tma_load(void* to, const TensorMap& map, void* mbarrier, const Coordinates& at, int dims,
              Site site);
void tma_store(const TensorMap& map, const void* from, const Coordinates& at, int dims, Site site);
// Copies to the same place in all blocks of the cluster whose bits in `blocks` are set.
void tma_load_multicast(void* to, const TensorMap& map, void* mbarrier, unsigned blocks,
                        const Coordinates& at, int dims, Site site);
void send_word(uint32_t* to, uint32_t word, void* mbarrier, int rank, Site site);
void bulk_load(void* to, const void* from, int bytes, void* mbarrier, Site site);
void bulk_store(void* to, const void* from, int bytes, Site site);
void bulk_add(float* to, const float* from, int bytes, Site site);
void bulk_commit(Site site);
void bulk_wait(int newest, bool written, Site site);
void prefetch_tensor_map(const TensorMap& map, Site site);  // fails for a map that was never made

}  // namespace shale::emulator
