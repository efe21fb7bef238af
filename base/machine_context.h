#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace shale {

// A suspended line of execution: what is needed to go on with it. On x86-64 the registers lie on
// its stack and a switch takes some nanoseconds; elsewhere ucontext does it, with a system call.
struct MachineContext {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t machine;
#endif
  // Its stack; the owner of a thread's own stack leaves it out. For AddressSanitizer.
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

// `context` will start in entry(), which must never return, on this stack.
void make_context(MachineContext& context, std::byte* stack, size_t stack_bytes, void (*entry)());

// Goes on with `to`, returns when somebody switches to `from`. `last` says that nobody will.
void switch_context(MachineContext& from, MachineContext& to, bool last = false);

}  // namespace shale
