#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace shale {

// A suspended execution context. On x86-64 its registers are on its stack, and a switch takes a few
// nanoseconds. Other platforms use ucontext, with a system call per switch.
struct MachineContext {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t machine;
#endif
  // The stack, for AddressSanitizer. Unset for a thread's own stack.
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

// Prepares `context` to start in entry() on this stack. entry() must never return.
void make_context(MachineContext& context, std::byte* stack, size_t stack_bytes, void (*entry)());

// Suspends `from` and resumes `to`. Returns when a context switches to `from`. `last`: no context
// will switch to `from` again.
void switch_context(MachineContext& from, MachineContext& to, bool last = false);

}  // namespace shale
