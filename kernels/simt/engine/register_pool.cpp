#include "shale/kernels/simt/engine/register_pool.h"

#include <algorithm>
#include <utility>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

constexpr int kRegisters = 65536;  // registers per multiprocessor; allocated in units of eight
constexpr int kUnit = 8;
constexpr int kMost = 256;  // maximum registers per thread

}  // namespace

void RegisterPool::reset() {
  const int start = std::min(kRegisters / block_.threads() / kUnit * kUnit, kMost);
  threads_.assign(static_cast<size_t>(block_.threads()), {.registers = start});
  finished_.assign(static_cast<size_t>(block_.threads() / kWarpgroup), -1);
  waiting_.clear();
  free_ = 0;
}

RegisterPool::Thread& RegisterPool::of(const Fiber& self) {
  if (self.id / kWarpgroup >= static_cast<int>(finished_.size())) {
    block_.fail(Fault::kRegisters,
                cat(self.primitive, ": the warpgroup has fewer than 128 threads"));
  }
  return threads_[static_cast<size_t>(self.id)];
}

void RegisterPool::check_direction(const Thread& thread, int registers, bool is_right) {
  if (is_right) return;
  block_.fail(Fault::kRegisters, cat(t_fiber->primitive, ": asks for ", registers,
                                     " registers, but the thread has ", thread.registers));
}

void RegisterPool::shrink(Fiber& self, int registers) {
  Thread& thread = of(self);
  check_direction(thread, registers, registers <= thread.registers);
  free_ += thread.registers - registers;
  thread.registers = registers;
  ++thread.calls;
  for (Fiber* fiber : std::exchange(waiting_, {})) block_.wake(*fiber);
}

void RegisterPool::grow(Fiber& self, int registers) {
  Thread& thread = of(self);
  check_direction(thread, registers, registers >= thread.registers);
  thread.wanted = registers - thread.registers;
  while (free_ < thread.wanted) {
    waiting_.push_back(&self);
    block_.wait(self);
  }
  free_ -= std::exchange(thread.wanted, 0);
  thread.registers = registers;
  ++thread.calls;
}

void RegisterPool::finish(const Fiber& self) {
  const auto group = static_cast<size_t>(self.id / kWarpgroup);
  if (group >= finished_.size()) return;
  const int other = std::exchange(finished_[group], self.id);
  if (other < 0) return;
  const Thread &mine = threads_[static_cast<size_t>(self.id)],
               &theirs = threads_[static_cast<size_t>(other)];
  if (mine.registers == theirs.registers && mine.calls == theirs.calls) return;
  block_.fail(Fault::kRegisters,
              cat("the threads of a warpgroup end with different numbers of registers: this one "
                  "with ",
                  mine.registers, " after ", mine.calls, " changes, thread ", other, " with ",
                  theirs.registers, " after ", theirs.calls));
}

std::string RegisterPool::describe(const Fiber& fiber) const {
  return cat("for ", threads_[static_cast<size_t>(fiber.id)].wanted, " more registers a thread, ",
             free_, " are free in the block");
}

void shrink_registers(int registers, Site site) {
  Fiber& self = enter("shrink_registers", site);
  self.block->registers().shrink(self, registers);
}

void grow_registers(int registers, Site site) {
  Fiber& self = enter("grow_registers", site);
  self.block->registers().grow(self, registers);
}

}  // namespace shale::emulator
