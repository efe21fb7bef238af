#include "shale/kernels/cuda/gemm/gemm_lines.h"

#include "shale/kernels/check.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kCopyThreads = 128;

// Lines of any alignment to lines of packs. A thread writes one pack of every gridDim.y-th line.
template <typename T>
__global__ void __launch_bounds__(kCopyThreads)
    align_lines_kernel(const T* from, int64_t from_ld, T* to, int64_t to_ld, int64_t lines,
                       int64_t length) {
  await_previous_grid();
  const int64_t column = (int64_t{blockIdx.x} * kCopyThreads + threadIdx.x) * kPackSize<T>;
  if (column >= to_ld) return;
  for (int64_t line = blockIdx.y; line < lines; line += gridDim.y) {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      pack.at[i] = column + i < length ? from[line * from_ld + column + i] : from_float<T>(0.0f);
    }
    store_pack(to + line * to_ld + column, pack);
  }
}

}  // namespace

Matrix align_lines(const Exec& exec, const Lines& from, void* to) {
  const Matrix aligned = {.data = to,
                          .dtype = from.matrix.dtype,
                          .ld = from.aligned_ld(),
                          .transposed = from.matrix.transposed};
  dispatch_float(from.matrix.dtype, [&]<typename T>() {
    constexpr int64_t kMaxGrid = 65535;
    const int64_t columns = ceil_div(aligned.ld, int64_t{kCopyThreads} * kPackSize<T>);
    simt::launch(
        align_lines_kernel<T>,
        {.grid = {columns, from.count < kMaxGrid ? from.count : kMaxGrid}, .block = kCopyThreads},
        exec, static_cast<const T*>(from.matrix.data), from.matrix.ld, static_cast<T*>(to),
        aligned.ld, from.count, from.length);
  });
  return aligned;
}

}  // namespace shale::kernels::SHALE_BACKEND
