#pragma once

#include <cstdint>

#include "shale/base/machine_context.h"
#include "shale/kernels/simt/engine/async_copies.h"
#include "shale/kernels/simt/engine/bulk_copies.h"
#include "shale/kernels/simt/engine/site.h"
#include "shale/kernels/simt/engine/warpgroup.h"

namespace shale::emulator {

class Block;

inline constexpr int kWarp = 32;

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

// One CUDA thread, as a fiber. It stays on the OS thread that runs its block.
struct Fiber {
  enum class State : uint8_t { kReady, kWaiting, kExited };

  Index3 index{};  // threadIdx
  int id = 0;      // linear thread index in the block
  int actor = 0;   // number of this thread in its cluster's clocks
  int warp = 0, lane = 0;
  Block* block = nullptr;
  State state = State::kReady;
  // Name of the primitive that the thread executes or executed last, for reports.
  const char* primitive = nullptr;
  Site site{};
  int barrier = 0;           // named barrier or mbarrier that the thread waits at
  bool before_wait = false;  // true in a dependent grid before await_previous_grid()
  bool multiplies = false;   // matmuls in flight use registers of this thread
  AsyncCopies copies{};
  BulkStores stores{};
  WgmmaThread wgmma{};
  MachineContext context{};
};

// The CUDA thread that currently runs on this OS thread; null outside kernels. With constinit,
// reading the pointer costs one load, without a check whether it has been constructed.
extern constinit thread_local Fiber* t_fiber;

}  // namespace shale::emulator
