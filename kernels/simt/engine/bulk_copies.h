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

// A copy by TMA: a box of an array (kBox), a run of bytes (kRun, kAdd), or a word that a thread
// sends to another block of its cluster (kWord).
struct BulkCopy {
  enum class Kind : uint8_t { kBox, kRun, kAdd, kWord };
  Kind kind = Kind::kBox;
  uint32_t offset = 0, bytes = 0;  // place and size in shared memory
  TensorMap map{};                 // kBox: the array to which the box belongs
  Coordinates at{};
  std::byte* device = nullptr;  // device memory of a kRun or kAdd
  uint32_t word = 0;
};

// Copies to a block's shared memory that threads of its cluster have issued. When a copy is issued,
// its target is filled with 0xff bytes. The data arrives as late as the hardware allows: when no
// thread of the cluster can run, or threads only poll. The thread order decides which of several
// copies lands first.
class BulkLoads {
 public:
  explicit BulkLoads(Block& block) : block_(block) {}
  void reset(Order order, uint64_t seed);
  void issue(Fiber& self, const BulkCopy& copy, void* mbarrier);
  bool land_one();  // lands a copy; false: none is in flight
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

// Copies of one thread from shared to device memory. The copy reads shared memory when the thread
// waits for reads, and writes device memory when the thread waits for writes or ends.
class BulkStores {
 public:
  void issue(Fiber& self, const BulkCopy& copy);
  void commit(Fiber& self);
  void wait(Fiber& self, size_t newest, bool written);
  void finish(Fiber& self);  // called at the thread's end; fails if copies were not waited for
  void reset();

 private:
  struct Store {
    BulkCopy copy;
    std::vector<std::byte> data{};  // contents of shared memory when it was read
  };
  struct Group {
    std::vector<Store> stores{};
    SyncClock clock{};  // orders the reads of shared memory
  };
  void read(Fiber& self, Group& group);

  std::vector<Store> open_{};   // copies that are not yet in a group
  std::deque<Group> groups_{};  // oldest first; the first read_ groups have been read
  size_t read_ = 0;
  int engine_ = -1;  // actor that does these copies
};

// Functions that kernels call; they act for the current thread.
void tma_load(void* to, const TensorMap& map, void* mbarrier, const Coordinates& at, int dims,
              Site site);
void tma_store(const TensorMap& map, const void* from, const Coordinates& at, int dims, Site site);
// Copies a box to the same address in all blocks of the cluster whose bits in `blocks` are set.
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
