#include "shale/kernels/cuda/gemm/gemm_lines.h"

#include "shale/kernels/check.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kCopyThreads = 128;

// Copies lines of any alignment to lines of whole packs. A thread writes one pack.
template <typename T>
__global__ void __launch_bounds__(kCopyThreads)
    align_lines_kernel(const T* from, int64_t from_ld, T* to, int64_t line_packs, int64_t packs,
                       int64_t length) {
  await_previous_grid();
  const int64_t number = int64_t{blockIdx.x} * kCopyThreads + threadIdx.x;
  if (number >= packs) return;
  const int64_t line = number / line_packs;
  const int64_t column = (number - line * line_packs) * kPackSize<T>;
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) {
    pack.at[i] = column + i < length ? from[line * from_ld + column + i] : from_float<T>(0.0f);
  }
  store_pack(to + number * kPackSize<T>, pack);
}

}  // namespace

Matrix align_lines(const Exec& exec, const Lines& from, void* to) {
  const Matrix aligned = {.data = to,
                          .dtype = from.matrix.dtype,
                          .ld = from.aligned_ld(),
                          .transposed = from.matrix.transposed};
  dispatch_float(from.matrix.dtype, [&]<typename T>() {
    const int64_t line_packs = aligned.ld / kPackSize<T>, packs = from.count * line_packs;
    simt::launch(align_lines_kernel<T>,
                 {.grid = ceil_div(packs, int64_t{kCopyThreads}), .block = kCopyThreads}, exec,
                 static_cast<const T*>(from.matrix.data), from.matrix.ld, static_cast<T*>(to),
                 line_packs, packs, from.length);
  });
  return aligned;
}

}  // namespace shale::kernels::SHALE_BACKEND
