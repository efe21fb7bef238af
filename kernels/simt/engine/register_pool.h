#pragma once

#include <string>
#include <vector>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

class Block;
struct Fiber;

// The registers of a block whose warpgroups change their register count (PTX ISA, "setmaxnreg").
// Each thread starts with the most registers that a block of this size allows; registers that some
// warpgroups release become available to others. Fails for a shrink to a larger number, for a grow
// to a smaller one, and if the threads of a warpgroup do not all make the same call. A grow waits
// until enough registers are free.
class RegisterPool {
 public:
  explicit RegisterPool(Block& block) : block_(block) {}
  void reset();

  void shrink(Fiber& self, int registers);
  void grow(Fiber& self, int registers);
  void finish(const Fiber& self);  // called at the thread's end

  // Returns what a thread waits for: "for 72 more registers a thread, 40 are free in the block".
  std::string describe(const Fiber& fiber) const;

 private:
  struct Thread {
    int registers = 0, wanted = 0, calls = 0;
  };
  Thread& of(const Fiber& self);
  void check_direction(const Thread& thread, int registers, bool is_right);

  Block& block_;
  std::vector<Thread> threads_{};
  std::vector<int> finished_{};  // per warpgroup: number of a thread that has ended, or -1
  std::vector<Fiber*> waiting_{};
  int free_ = 0;
};

// Functions that kernels call; they act for the current thread.
void shrink_registers(int registers, Site site);
void grow_registers(int registers, Site site);

}  // namespace shale::emulator
