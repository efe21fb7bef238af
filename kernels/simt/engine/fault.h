#pragma once

#include "shale/base/error.h"

namespace shale::emulator {

// What the emulator finds wrong with a kernel. docs/emulator.md says what each check sees and what
// it does not.
enum class Fault : uint8_t {
  kLaunch,               // sizes that the hardware would refuse
  kDeadlock,             // no thread can run, not all have ended
  kDivergentBarrier,     // threads at different __syncthreads, or gone while others wait at one
  kBarrierMisuse,        // barrier number or thread count
  kDivergentCollective,  // lanes of one mask at different operations, or lanes that are gone
  kOutOfBounds,          // shared memory that the block does not have, global memory of nobody
  kMisaligned,
  kUninitialised,  // read of memory that nobody wrote
  kRace,           // accesses to memory that nothing orders; to global memory, by two blocks
  kAsyncCopy,      // a copy: its memory used before it has landed, or never waited for
  kProxyFence,     // copy engine or wgmma on what a thread wrote, without a fence between
  kWgmma,          // wgmma: its registers or operands misused
  kRegisters,      // a warpgroup changes its number of registers in a way it cannot
  kCluster,        // a block of a cluster that reaches for one that is not there, or has ended
  kGridOrder,      // a dependent grid at global memory, or at its end, before await_previous_grid()
};

// Thrown by a launch, or for a deferred one by the next synchronisation. The message names the
// kernel, the block, the thread and, where known, the source line.
class KernelError : public InternalError {
 public:
  KernelError(Fault fault, const std::string& message) : InternalError(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

}  // namespace shale::emulator
