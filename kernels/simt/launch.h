#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND::simt {

// Blocks of a grid, or threads of a block. A count that does not fit becomes 0, which launch()
// refuses.
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;

  constexpr Dim3() = default;
  constexpr Dim3(int64_t nx, int64_t ny = 1, int64_t nz = 1)
      : x(narrow(nx)), y(narrow(ny)), z(narrow(nz)) {}

 private:
  static constexpr unsigned narrow(int64_t n) {
    return n < 0 || n > int64_t{UINT32_MAX} ? 0 : static_cast<unsigned>(n);
  }
};

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Whether launch() asks for the dynamic shared memory that a kernel gets. A block that nobody asked
// for has 48 KiB, its static objects and the gap before the dynamic part included; how large those
// are the compiler decides, so any dynamic part is asked for.
constexpr bool asks_for_shared_memory(size_t dynamic_bytes) {
  return dynamic_bytes > 0;
}

}  // namespace shale::kernels::SHALE_BACKEND::simt

// launch(kernel, {.grid = blocks, .block = threads, .smem_bytes = n}, exec, arguments...) queues
// kernel<<<...>>>(arguments...) on exec.stream. It copies the arguments and does not wait. With
// .cluster = n the blocks form clusters (cluster.h).
//
// await_previous_grid() is what every thread of every kernel calls first: before it reads or writes
// global memory, and before it ends. With exec.dependent_launch the blocks of a grid come up while
// the grid before it in the stream still runs; this waits until that one has ended and what it
// wrote is there. Then it lets the next grid's blocks come up, once all blocks of its own have.
// Without dependent_launch it does nothing. What may stand before it: shared memory, barriers,
// arguments, prefetches, which are mere hints. The emulator holds kernels to that.
//
// Why the next grid is let up after the wait and not sooner: then, when a kernel begins, every grid
// but the one just before it has ended. So two at most share the GPU, and a kernel's wait for that
// one is a wait for all.
#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/launch.h"
#else
#include "shale/kernels/simt/emu/launch.h"
#endif
