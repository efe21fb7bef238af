#pragma once

#include <cstddef>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

struct Fiber;

// The emulator runs the grids of a stream one after another, dependent or not. In a dependent grid,
// before await_previous_grid(), it checks that threads do nothing that would be wrong on a GPU,
// where the previous grid may still run.

// Fails if the current thread has not called await_previous_grid() yet. `access`: a verb for the
// message, such as "reads 4 bytes of".
void check_waited(Fiber& self, const char* access);

// Rest of a message that begins with, for example, "the thread reads 4 bytes of".
inline constexpr const char* kBeforeWait =
    " global memory before await_previous_grid(), in a grid launched as dependent: the previous "
    "grid may still use that memory";

// ---- Called by kernels, on the current thread ----

// Called by launch() when the kernel begins. The kernel's address and arguments are in the `bytes`
// bytes at `call`, which are not global memory.
void begin_kernel(const void* call, size_t bytes);
void await_previous_grid(Site site);

}  // namespace shale::emulator
