#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/simt/engine/clocks.h"
#include "kernels/simt/engine/fault.h"
#include "kernels/simt/engine/mapping.h"

namespace shale::emulator {

class Block;
struct Fiber;

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Looks at every access to a block's shared memory and fails the block when two of them are not
// ordered by barriers and one writes, when memory is read that nobody wrote or that a copy is still
// on its way to, and when an access is outside what the block has.
//
// Kernels are compiled with -fsanitize=thread, which calls a function before each load and store;
// those functions are ours (tracker_hooks.cpp). The primitives report their accesses themselves.
class Tracker {
 public:
  explicit Tracker(Block& block);

  void begin_block(int threads, bool on);
  void end_block();
  bool on() const { return on_; }

  // Bytes [offset, offset + bytes) of the arena, by the current thread or `actor`.
  void access(int actor, uint32_t offset, uint32_t bytes, Access kind);
  // A plain access of the current thread, from instrumented code.
  void plain_access(const void* p, uint32_t bytes, Access kind, const void* instruction);

  // A cp.async of `thread`: nobody may touch the memory from issue to landing.
  void copy_issued(int thread, uint32_t offset, uint32_t bytes);
  void copy_landed(int thread, uint32_t offset, uint32_t bytes);

  // ---- What orders accesses ----
  void barrier_of_all();
  void join_lanes(int warp, uint32_t lanes);
  void release(int thread, SyncClock& clock);
  // The fibers whose `waits` is set have seen all that was released into `clock`.
  void acquire(std::span<Fiber* const> fibers, const std::vector<bool>& waits,
               const SyncClock& clock);

 private:
  // Readers of a byte that are in step with each other: lanes of one warp at one time.
  struct Readers {
    uint32_t time, lanes;
  };
  // What is known of a byte. Zero: nobody has accessed it.
  struct Cell {
    uint32_t write_epoch, write_time;
    uint32_t read_epoch;
    Readers readers[2];
    uint16_t writer;
    uint8_t reader_warp[2];
    uint8_t state;  // kAtomicWrite, kInFlight
    uint8_t unused[3];
  };
  static constexpr uint8_t kAtomicWrite = 1, kInFlight = 2;

  void access_byte(Cell& cell, int actor, uint32_t offset, Access kind);
  void check_after_write(const Cell& cell, int actor, uint32_t offset, Access kind);
  void check_after_reads(const Cell& cell, int actor, uint32_t offset, Access kind);
  void add_reader(Cell& cell, int actor) const;
  [[noreturn]] void report(Fault fault, std::string&& what);
  [[noreturn]] void report_race(int actor, Access kind, uint32_t offset, int other,
                                const char* did);
  std::string location(uint32_t offset) const;

  Block& block_;
  bool on_ = false;
  int threads_ = 0;
  Mapping shadow_{};  // a Cell for each byte of the arena
  Clocks clocks_;
  // A barrier of all threads orders everything before it with everything after: it starts an epoch,
  // and accesses of earlier epochs need no look at the clocks.
  uint32_t epoch_ = 0;
  uint32_t first_epoch_ = 0;  // of this block
  const void* instruction_ = nullptr;
};

// Whether this program has kernels that were compiled for the tracker: not if it was built with a
// sanitizer. Without them the tracker stays off.
bool has_instrumented_kernels();

// The arena of the block that this OS thread tracks; null if it tracks none. Separate from Tracker,
// so that the functions called at every load and store are quick to see that nothing is to be done.
extern constinit thread_local const std::byte* t_tracked_arena;

}  // namespace shale::emulator
