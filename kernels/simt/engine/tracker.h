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

// Engines that access shared memory besides the threads. Each engine is an actor in the vector
// clocks, and accesses memory through the async proxy (kernels/simt/hopper.h).
enum class EngineKind : uint8_t {
  kBulkLoads,   // the copies that one mbarrier counts
  kBulkStores,  // a thread's copies to device memory
  kWgmma,       // the matmuls (wgmma) of one warpgroup
};

// All actors that access the shared memory of a cluster's blocks, and their vector clocks: first
// the threads, block by block, in whole warps, then the engines.
struct Actors {
  struct Engine {
    EngineKind kind;
    int rank, number;  // rank of its block; number of its mbarrier, thread or warpgroup
  };
  // Returns the number of actors for a block's threads, rounded up to whole warps.
  static int threads_of(int block_threads);
  void reset(int block_threads, int blocks);
  int first_of(int rank) const { return rank * threads_of_block; }

  Clocks clocks{};
  int threads_of_block = 0, threads = 0;
  std::vector<Engine> engines{};                // the actors from number `threads` on
  // for each thread: its times that ended with a proxy fence
  std::vector<std::vector<uint32_t>> fences{};
};

// Checks every access to a block's shared memory. The block fails if two accesses are not ordered
// by barriers and one writes, if memory is read that was never written or that a copy in flight
// will write, or if an access is outside the block's shared memory.
//
// Kernels are compiled with -fsanitize=thread, which calls a function before each load and store;
// those functions are defined in tracker_hooks.cpp. The primitives report their accesses
// themselves.
class Tracker {
 public:
  explicit Tracker(Block& block);

  // Starts to track a block. `actors` are those of the block's cluster, in which the block has
  // number `rank`. The functions below identify a thread by its Fiber::actor.
  void begin_block(Actors& actors, int rank, int threads, bool on);
  void end_block();
  bool on() const { return on_; }
  // Called when threads of this block start to run on this OS thread.
  void resume();

  // Records an access of a thread to bytes [offset, offset + bytes) of shared memory.
  void access(int thread, uint32_t offset, uint32_t bytes, Access kind);
  // Called by instrumented code for a load or store of the current thread.
  void plain_access(const void* p, uint32_t bytes, Access kind, const void* instruction);
  // Called for a load or store outside shared memory before await_previous_grid(). Fails for global
  // memory, where the previous grid may still be working.
  void early_access(const void* p, uint32_t bytes, Access kind, const void* instruction);

  // Records a cp.async of `thread`. Between issue and landing no thread may access the memory.
  void copy_issued(int thread, uint32_t offset, uint32_t bytes);
  void copy_landed(int thread, uint32_t offset, uint32_t bytes);

  // ---- Engines: an access comes after all that the issuing thread has seen ----
  int add_engine(EngineKind kind, int number);  // see Actors::Engine
  void load_issued(int engine, int thread, uint32_t offset, uint32_t bytes);
  void load_landed(int engine, uint32_t offset, uint32_t bytes);
  void store_issued(int engine, int thread, uint32_t offset, uint32_t bytes);
  // Records that a matmul reads bytes for all threads of its warpgroup. Threads that have seen the
  // same times need only one check, so `threads` has one of each kind (different_knowledge()).
  void product_reads(int engine, std::span<const int> threads, uint32_t offset, uint32_t bytes);
  std::vector<int> different_knowledge(int first_thread, int count) const;
  // Ends the engine's current clock time and returns it. The engine's accesses so far belong to
  // that time, later accesses to the next one.
  uint32_t tick(int engine) { return on_ ? actors_->clocks.tick(engine) : 0; }
  void release_time(int engine, uint32_t time, SyncClock& clock) const {
    if (on_) actors_->clocks.release_time(engine, time, clock);
  }
  void proxy_fence(int thread);

  // ---- Order of accesses ----
  void barrier_of_all();
  void join_lanes(int warp, uint32_t lanes);
  void release(int actor, SyncClock& clock);
  void learn(int thread, SyncClock& clock);
  // Makes everything released into `clock` seen by the fibers whose `waits` is set.
  void acquire(std::span<Fiber* const> fibers, const std::vector<bool>& waits,
               const SyncClock& clock);

 private:
  using Cell = Shadow::Cell;

  // The actor of an access, and the thread whose seen times order the access. They are the same for
  // accesses by threads.
  struct Accessor {
    int actor, thread;
    // A wgmma: only accesses that the whole warpgroup has seen come before it.
    bool collective = false;
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
  std::string thread_name(int actor) const;  // returns "thread 3"
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
  // A barrier of all threads of the block orders everything before it with everything after it.
  // Each such barrier starts an epoch; accesses in earlier epochs need no check of the clocks.
  // Engines do not take part in barriers, so epochs are not used after the first engine, or the
  // first proxy fence; nor for clusters of several blocks, which access each other's memory.
  uint32_t epoch_ = 0;
  uint32_t first_epoch_ = 0;  // first epoch of this block
  bool has_epochs_ = true;
  const void* instruction_ = nullptr;
};

// Returns whether this program has kernels that were compiled for the tracker. It has none if it
// was built with a sanitizer; the tracker then stays off.
bool has_instrumented_kernels();

// Start of the shared memory of the block that this OS thread tracks, or null. It is not a member
// of Tracker, so that the functions called at every load and store can return quickly when nothing
// is tracked.
extern constinit thread_local const std::byte* t_tracked_arena;

}  // namespace shale::emulator
