#include "shale/base/machine_context.h"

#include <cstdint>
#include <cstdlib>

#include "shale/base/address_sanitizer.h"

#ifdef SHALE_HAVE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace shale {
namespace {

#ifdef SHALE_HAVE_ASAN

// For AddressSanitizer. After a switch, the resumed context (t_arriving) reports that it has
// arrived. It then receives the bounds of the stack of the context that was suspended (t_left).
constinit thread_local MachineContext* t_left = nullptr;
constinit thread_local MachineContext* t_arriving = nullptr;

void announce_switch(MachineContext& from, MachineContext& to, bool last) {
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.stack_bottom,
                                 to.stack_bytes);
  t_left = &from;
  t_arriving = &to;
}
void report_arrival() {
  __sanitizer_finish_switch_fiber(t_arriving->fake_stack, &t_left->stack_bottom,
                                  &t_left->stack_bytes);
}

#else

void announce_switch(MachineContext&, MachineContext&, bool) {}
void report_arrival() {}

#endif

[[noreturn]] void start(void (*entry)()) {
  report_arrival();
  entry();
  std::abort();  // entry() must not return: there is no caller
}

}  // namespace

#if defined(__x86_64__)

// Saves the registers that a function must preserve (System V ABI) on the old stack and restores
// them from the new one. MXCSR and the x87 control word are not saved: no kernel changes them.
asm(R"(
.text
.p2align 4
.globl shale_switch_stack
.hidden shale_switch_stack
.type shale_switch_stack, @function
shale_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size shale_switch_stack, . - shale_switch_stack
.p2align 4
.globl shale_start_stack
.hidden shale_start_stack
.type shale_start_stack, @function
shale_start_stack:
  movq %r15, %rdi
  jmp shale_start_context
.size shale_start_stack, . - shale_start_stack
)");
extern "C" void shale_switch_stack(void** old_stack_pointer, void* new_stack_pointer);
extern "C" void shale_start_stack();
// The new stack holds the entry point in the slot of r15, because contexts of one thread may have
// different entry points.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void shale_start_context(void (*entry)()) {
  start(entry);
}

void make_context(MachineContext& context, std::byte* stack, size_t stack_bytes, void (*entry)()) {
  context.stack_bottom = stack;
  context.stack_bytes = stack_bytes;
  context.fake_stack = nullptr;
  // Contents from the top of the stack down: a null return address, which ends backtraces; the
  // address for `ret`; six registers. After `ret`, rsp is 8 below a multiple of 16, as after a
  // call.
  auto* top = reinterpret_cast<uintptr_t*>(stack + stack_bytes);
  top[-1] = 0;
  top[-2] = reinterpret_cast<uintptr_t>(&shale_start_stack);
  for (int i = 3; i <= 7; ++i) top[-i] = 0;
  top[-8] = reinterpret_cast<uintptr_t>(entry);
  context.stack_pointer = top - 8;
}

// noinline: the compiler must treat it as a call that may change everything.
__attribute__((noinline)) void switch_context(MachineContext& from, MachineContext& to, bool last) {
  announce_switch(from, to, last);
  shale_switch_stack(&from.stack_pointer, to.stack_pointer);
  report_arrival();
}

#else

void start_halves(unsigned low, unsigned high) {
  start(reinterpret_cast<void (*)()>(uintptr_t{high} << 32 | low));
}

void make_context(MachineContext& context, std::byte* stack, size_t stack_bytes, void (*entry)()) {
  context.stack_bottom = stack;
  context.stack_bytes = stack_bytes;
  context.fake_stack = nullptr;
  getcontext(&context.machine);
  context.machine.uc_stack.ss_sp = stack;
  context.machine.uc_stack.ss_size = stack_bytes;
  context.machine.uc_link = nullptr;
  // makecontext() passes ints, so the address is split.
  const auto address = uint64_t{reinterpret_cast<uintptr_t>(entry)};
  makecontext(&context.machine, reinterpret_cast<void (*)()>(&start_halves), 2,
              static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
}

__attribute__((noinline)) void switch_context(MachineContext& from, MachineContext& to, bool last) {
  announce_switch(from, to, last);
  swapcontext(&from.machine, &to.machine);
  report_arrival();
}

#endif

}  // namespace shale
