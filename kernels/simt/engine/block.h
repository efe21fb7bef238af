#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/kernels/simt/engine/barriers.h"
#include "shale/kernels/simt/engine/bulk_copies.h"
#include "shale/kernels/simt/engine/fault.h"
#include "shale/kernels/simt/engine/fiber.h"
#include "shale/kernels/simt/engine/global_access.h"
#include "shale/kernels/simt/engine/grid_order.h"
#include "shale/kernels/simt/engine/mapping.h"
#include "shale/kernels/simt/engine/mbarriers.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/kernels/simt/engine/register_pool.h"
#include "shale/kernels/simt/engine/run_queue.h"
#include "shale/kernels/simt/engine/shared_memory.h"
#include "shale/kernels/simt/engine/tracker.h"
#include "shale/kernels/simt/engine/warp.h"
#include "shale/kernels/simt/engine/warpgroup.h"

namespace shale::emulator {

class Cluster;

inline constexpr int kMaxThreads = 1024;  // threads per block

// A launch: what all of its blocks have in common.
struct Grid {
  Index3 blocks{}, threads{};
  int cluster = 1;                 // blocks per cluster, neighbours along x
  const void* function = nullptr;  // address of the kernel
  size_t dynamic_bytes = 0;        // bytes of dynamic shared memory
  bool asked_for_shared = false;   // the kernel may use more than SharedMemory::kUnasked
  size_t shared_limit = 0;         // maximum shared memory per block; launch() sets it
  bool dependent = false;          // see Exec::dependent_launch
  Options options{};
  // Place of the launch; its function is the kernel's name in reports.
  Site site{};
  std::function<void()> body{};  // calls the kernel with its arguments
};

// A CUDA thread block, run by a Cluster. The object is reused, with its stacks and shared memory,
// for the next block. The block's threads are fibers that run until they wait. A failure never
// unwinds a fiber, because its frames may be compiled without unwind information; it abandons the
// whole cluster.
class Block {
 public:
  Block(Cluster& cluster, int rank);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // ---- For its cluster ----
  // Prepares to run block `index`. `launch`: as in GlobalAccess::begin_block().
  void begin(const Grid& grid, Index3 index, GlobalLaunch* launch, Actors& actors);
  void end();
  int live() const { return live_; }  // threads that have not ended
  bool can_run() const { return !queue_.empty(); }
  Fiber* take_runnable() { return queue_.pop(); }
  std::span<const Fiber> fibers() const { return {fibers_.data(), static_cast<size_t>(threads_)}; }
  // Sets the cluster's error. If self is null, the message names no thread.
  void fill_error(Fault fault, std::string&& what, const Fiber* self);

  Cluster& cluster() { return cluster_; }
  int rank() const { return rank_; }
  // Returns " of block 1 of the cluster" if the current thread belongs to another block, else "".
  std::string seen_from_elsewhere() const;
  const Grid& grid() const { return *grid_; }
  const Index3& index() const { return index_; }
  int threads() const { return threads_; }
  SharedMemory& shared() { return shared_; }
  Tracker& tracker() { return tracker_; }
  GlobalAccess& global() { return global_; }
  Barriers& barriers() { return barriers_; }
  MBarriers& mbarriers() { return mbarriers_; }
  const MBarriers& mbarriers() const { return mbarriers_; }
  BulkLoads& loads() { return loads_; }
  Warpgroups& warpgroups() { return warpgroups_; }
  RegisterPool& registers() { return registers_; }
  const RegisterPool& registers() const { return registers_; }
  WarpCollectives& warp(int index) { return warps_[static_cast<size_t>(index)]; }
  void hold_call(const void* call, size_t bytes) { call_ = call, call_bytes_ = bytes; }
  std::span<const std::byte> stacks() const { return {stacks_.data(), stacks_.size()}; }
  // Returns the memory that p points into if it would not be global memory on a GPU: threads' local
  // variables, index variables, kernel arguments. Otherwise returns an empty span.
  std::span<const std::byte> held(const void* p) const;
  bool holds(const void* p) const { return !held(p).empty(); }

  // ---- For primitives, called on the fiber `self` ----
  void wait(Fiber& self);  // returns after another thread has called wake()
  void wake(Fiber& fiber);
  void yield(Fiber& self);  // lets all other threads run first
  // Ends the cluster with a KernelError, which names the current thread; that thread may belong to
  // another block that accesses this block's memory. fail() never returns to its caller, whose
  // destructors do not run. Therefore it moves the text out of `what`, and the caller must hold no
  // other strings, nor temporaries in the argument.
  [[noreturn]] void fail(Fault fault, std::string&& what);

 private:
  static void fiber_main();
  void start_fibers();
  void go_on(Fiber& self, bool yields = false);
  void end_thread(Fiber& self);
  [[noreturn]] void abandon(Fiber* self);

  Cluster& cluster_;
  int rank_;
  const Grid* grid_ = nullptr;
  const void* call_ = nullptr;  // memory that holds the kernel's address and arguments
  size_t call_bytes_ = 0;
  Index3 index_{};
  int threads_ = 0;
  int live_ = 0;
  Mapping stacks_{};
  int stack_count_ = 0;
  std::vector<Fiber> fibers_{};
  RunQueue queue_{};
  SharedMemory shared_;
  Tracker tracker_;
  GlobalAccess global_;
  Barriers barriers_;
  MBarriers mbarriers_;
  BulkLoads loads_;
  Warpgroups warpgroups_;
  RegisterPool registers_;
  std::vector<WarpCollectives> warps_;
};

// Returns the current thread and records that it executes `primitive` at `site`.
inline Fiber& enter(const char* primitive, Site site) {
  Fiber& self = *t_fiber;
  self.primitive = primitive;
  self.site = site;
  return self;
}

// Kernels call these functions to get the current thread's indices. They are defined in another
// file, because instrumented code would check each of a kernel's reads of the indices. The results
// never change for a thread.
[[gnu::const]] Index3 thread_index();
[[gnu::const]] Index3 block_index();
[[gnu::const]] Index3 block_size();
[[gnu::const]] Index3 grid_size();
[[gnu::const]] int lane_index();
[[gnu::const]] std::byte* dynamic_shared_memory();
std::byte* static_shared_memory(const void* key, size_t bytes, size_t alignment);
uint32_t shared_offset(const void* p);

// Fails unless p is a multiple of `bytes`. `name`: the operation.
void check_pack(const char* name, const void* p, size_t bytes, Site site);

// Fails unless p is in memory of the kind `space`.
enum class Space : uint8_t { kGlobal, kShared };
void check_space(const char* name, const void* p, Space space, Site site);

// Runs `operation` for all lanes of `mask` in the current thread's warp together.
void warp_collective(uint32_t mask, const WarpOperation& operation, void* payload, Site site);

}  // namespace shale::emulator
