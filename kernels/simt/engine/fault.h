#pragma once

#include "shale/base/error.h"

namespace shale::emulator {

// Kinds of errors that the emulator finds in a kernel. docs/contributing/emulator.md describes what
// each check finds and what it misses.
enum class Fault : uint8_t {
  kLaunch,               // grid, block or memory sizes that the hardware would reject
  kDeadlock,             // no thread can run, but not all have ended
  kDivergentBarrier,     // threads wait at different __syncthreads, or some have ended
  kBarrierMisuse,        // invalid number or thread count of a barrier
  kDivergentCollective,  // lanes of one mask at different operations, or a lane that has ended
  kOutOfBounds,          // access outside the block's shared memory and all global allocations
  kMisaligned,
  kUninitialised,  // read of memory that was never written
  kRace,           // unordered accesses, at least one a write; global memory: of different blocks
  kAsyncCopy,      // use of a copy's memory before it has landed, or a copy never waited for
  kProxyFence,     // TMA or wgmma accesses what a thread wrote, without a proxy fence between them
  kWgmma,          // wrong use of wgmma's registers or operands
  kRegisters,      // invalid change of a warpgroup's number of registers
  kCluster,        // access to a block of the cluster that does not exist or has ended
  kGridOrder,      // a dependent grid uses global memory, or ends, before await_previous_grid()
};

// Thrown by a launch or, if the work was queued, by the next synchronisation. The message names the
// kernel, the block, the thread and, if known, the source line.
class KernelError : public InternalError {
 public:
  KernelError(Fault fault, const std::string& message) : InternalError(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

}  // namespace shale::emulator
