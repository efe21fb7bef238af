#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND::simt {

// Number of blocks in a grid, or of threads in a block. A number that does not fit becomes 0, which
// launch() rejects.
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

// Returns whether launch() raises a kernel's limit of dynamic shared memory. By default a block has
// 48 KiB, which include its static objects and the gap before the dynamic part. The compiler
// decides how large those are, so the limit is raised for any dynamic part.
constexpr bool asks_for_shared_memory(size_t dynamic_bytes) {
  return dynamic_bytes > 0;
}

}  // namespace shale::kernels::SHALE_BACKEND::simt

// launch(kernel, {.grid = blocks, .block = threads, .smem_bytes = n}, exec, arguments...) queues
// kernel<<<...>>>(arguments...) on exec.stream. It copies the arguments and does not wait. With
// .cluster = n the blocks form clusters (cluster.h).
//
// Every thread of every kernel must call await_previous_grid() before it reads or writes global
// memory, and before it ends. With exec.dependent_launch the blocks of a grid start while the
// previous grid in the stream still runs; this call waits until that grid has ended and its writes
// are visible. Then it allows the next grid's blocks to start, once all blocks of this grid have
// called it. Without dependent_launch it does nothing. Before the call a kernel may use shared
// memory, barriers, arguments, and prefetches, which are only hints. The emulator checks this.
//
// The next grid is only allowed to start after the wait. So when a kernel begins, every grid but
// the previous one has ended: at most two share the GPU, and waiting for the previous grid means
// waiting for all.
#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/launch.h"
#else
#include "shale/kernels/simt/emu/launch.h"
#endif
