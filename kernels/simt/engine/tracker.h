#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/kernels/simt/engine/access.h"
#include "shale/kernels/simt/engine/clocks.h"
#include "shale/kernels/simt/engine/fault.h"
#include "shale/kernels/simt/engine/shadow.h"

namespace shale::emulator {

class Block;
struct Fiber;

// What accesses shared memory besides the threads. Each is an actor of its own, and reaches memory
// through the async proxy (kernels/simt/hopper.h).
enum class EngineKind : uint8_t {
  kBulkLoads,   // the copies that one mbarrier counts
  kBulkStores,  // those of one thread to device memory
  kWgmma,       // the products of one warpgroup
};

// Who accesses the shared memory of a cluster's blocks, and what they know of each other: the
// threads block by block, whole warps each, then the engines.
struct Actors {
  struct Engine {
    EngineKind kind;
    int rank, number;  // of its block; of the mbarrier, thread or warpgroup there
  };
  // What the numbers of a block's threads take.
  static int threads_of(int block_threads);
  void reset(int block_threads, int blocks);
  int first_of(int rank) const { return rank * threads_of_block; }

  Clocks clocks{};
  int threads_of_block = 0, threads = 0;
  std::vector<Engine> engines{};                // actors `threads` and up
  std::vector<std::vector<uint32_t>> fences{};  // of each thread: times that ended with one
};

// Looks at every access to a block's shared memory and fails the block when two of them are not
// ordered by barriers and one writes, when memory is read that nobody wrote or that a copy is still
// on its way to, and when an access is outside what the block has.
//
// Kernels are compiled with -fsanitize=thread, which calls a function before each load and store;
// those functions are ours (tracker_hooks.cpp). The primitives report their accesses themselves.
class Tracker {
 public:
  explicit Tracker(Block& block);

  // Threads are named by Fiber::actor, here and below. `actors` are those of the block's cluster,
  // in which it is number `rank`.
  void begin_block(Actors& actors, int rank, int threads, bool on);
  void end_block();
  bool on() const { return on_; }
  // From now on threads of this block run on this OS thread.
  void resume();

  // Bytes [offset, offset + bytes) of the arena, by a thread.
  void access(int thread, uint32_t offset, uint32_t bytes, Access kind);
  // A plain access of the current thread, from instrumented code.
  void plain_access(const void* p, uint32_t bytes, Access kind, const void* instruction);
  // The same outside the arena, before the thread has waited for the grid before its own: fails
  // where that may still be at work, in global memory.
  void early_access(const void* p, uint32_t bytes, Access kind, const void* instruction);

  // A cp.async of `thread`: nobody may touch the memory from issue to landing.
  void copy_issued(int thread, uint32_t offset, uint32_t bytes);
  void copy_landed(int thread, uint32_t offset, uint32_t bytes);

  // ---- Engines, which a thread sets to work: what it has seen orders their accesses ----
  int add_engine(EngineKind kind, int number);  // see Actors::Engine
  void load_issued(int engine, int thread, uint32_t offset, uint32_t bytes);
  void load_landed(int engine, uint32_t offset, uint32_t bytes);
  void store_issued(int engine, int thread, uint32_t offset, uint32_t bytes);
  // A product reads for all threads of its warpgroup. `threads`: one for each different knowledge,
  // from different_knowledge().
  void product_reads(int engine, std::span<const int> threads, uint32_t offset, uint32_t bytes);
  std::vector<int> different_knowledge(int first_thread, int count) const;
  // The engine's accesses until now are one time, those that follow another.
  uint32_t tick(int engine) { return on_ ? actors_->clocks.tick(engine) : 0; }
  void release_time(int engine, uint32_t time, SyncClock& clock) const {
    if (on_) actors_->clocks.release_time(engine, time, clock);
  }
  void proxy_fence(int thread);

  // ---- What orders accesses ----
  void barrier_of_all();
  void join_lanes(int warp, uint32_t lanes);
  void release(int actor, SyncClock& clock);
  void learn(int thread, SyncClock& clock);
  // The fibers whose `waits` is set have seen all that was released into `clock`.
  void acquire(std::span<Fiber* const> fibers, const std::vector<bool>& waits,
               const SyncClock& clock);

 private:
  using Cell = Shadow::Cell;

  // Actor that accesses memory, and the thread whose knowledge orders that: for a thread the same.
  struct Accessor {
    int actor, thread;
    bool collective = false;  // what a thread did itself its warpgroup has to have seen too
    bool is_engine() const { return actor != thread; }
  };

  uint32_t seen(const Accessor& by, int other) const {
    const Clocks& clocks = actors_->clocks;
    return by.collective ? clocks.known(by.thread, other) : clocks.seen(by.thread, other);
  }
  void access(const Accessor& by, uint32_t offset, uint32_t bytes, Access kind);
  void access_cell(Cell& cell, const Accessor& by, uint32_t offset, Access kind);
  void check_after_write(const Cell& cell, const Accessor& by, uint32_t offset, Access kind);
  void check_after_reads(const Cell& cell, const Accessor& by, uint32_t offset, Access kind);
  void check_proxy(const Cell& cell, const Accessor& by, uint32_t offset, Access kind);
  void set_state(uint32_t offset, uint32_t bytes, uint8_t state);
  void add_reader(Cell& cell, int actor) const;
  void join(std::span<const int> threads);
  int reader_warp(int actor) const;
  std::string thread_name(int actor) const;  // "thread 3"
  std::string name_of(int actor) const;
  [[noreturn]] void report(Fault fault, std::string&& what);
  [[noreturn]] void report_race(const Accessor& by, Access kind, uint32_t offset, int other,
                                const char* did);
  std::string location(uint32_t offset) const;

  Block& block_;
  bool on_ = false;
  Actors* actors_ = nullptr;
  int rank_ = 0, threads_ = 0;
  Shadow shadow_{};
  // A barrier of all threads orders everything before it with everything after: it starts an epoch,
  // and accesses of earlier epochs need no look at the clocks. Not so for engines, which meet at no
  // barrier: with the first of them, or the first fence for one, epochs end. Nor for a cluster's
  // blocks, which reach each other's memory.
  uint32_t epoch_ = 0;
  uint32_t first_epoch_ = 0;  // of this block
  bool has_epochs_ = true;
  const void* instruction_ = nullptr;
};

// Whether this program has kernels that were compiled for the tracker: not if it was built with a
// sanitizer. Without them the tracker stays off.
bool has_instrumented_kernels();

// The arena of the block that this OS thread tracks; null if it tracks none. Separate from Tracker,
// so that the functions called at every load and store are quick to see that nothing is to be done.
extern constinit thread_local const std::byte* t_tracked_arena;

}  // namespace shale::emulator
