#pragma once

#include <string>
#include <vector>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

class Block;
struct Fiber;

// The registers of a block whose warpgroups change how many they have (PTX ISA, "setmaxnreg"). Each
// thread starts with as many as the compiler can have given it in a block of this size, and what
// some release is there for others. Fails for a shrink to more, for a grow to fewer, and for a
// warpgroup whose threads do not all do the same; who grows waits until there are enough.
class RegisterPool {
 public:
  explicit RegisterPool(Block& block) : block_(block) {}
  void reset();

  void shrink(Fiber& self, int registers);
  void grow(Fiber& self, int registers);
  void finish(const Fiber& self);  // the thread ends

  // "for 72 registers a thread, where 1024 are free": what a thread waits for.
  std::string describe(const Fiber& fiber) const;

 private:
  struct Thread {
    int registers = 0, wanted = 0, calls = 0;
  };
  Thread& of(const Fiber& self);
  void check_direction(const Thread& thread, int registers, bool is_right);

  Block& block_;
  std::vector<Thread> threads_{};
  std::vector<int> finished_{};  // of each warpgroup: a thread that has ended, or -1
  std::vector<Fiber*> waiting_{};
  int free_ = 0;
};

// What kernels call, on the current thread.
void shrink_registers(int registers, Site site);
void grow_registers(int registers, Site site);

}  // namespace shale::emulator
