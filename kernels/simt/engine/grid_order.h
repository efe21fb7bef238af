#pragma once

#include <cstddef>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

struct Fiber;

// The emulator runs one grid of a stream after another, dependent or not. Up to
// await_previous_grid() it holds the threads of a dependent one to what makes that right on a GPU,
// where the grid before may still be at work.

// Fails if the current thread has yet to wait. `access`: what it does to global memory.
void check_waited(Fiber& self, const char* access);

// "the thread reads 4 bytes of" comes before it.
inline constexpr const char* kBeforeWait =
    " global memory before await_previous_grid(), and the grid was launched as dependent: the one "
    "before it may still be at work there";

// ---- What kernels call, on the current thread ----

// By launch(): the kernel begins, whose pointer and arguments lie at `call`. They are no global
// memory.
void begin_kernel(const void* call, size_t bytes);
void await_previous_grid(Site site);

}  // namespace shale::emulator
