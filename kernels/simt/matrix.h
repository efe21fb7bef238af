#pragma once

// Tensor-core instructions of one warp and the loads that feed them. All 32 lanes take part.
//
//   ldmatrix<n, transposed>(registers, row)    loads n (1, 2, 4) matrices of 8x8 16-bit elements
//                                              from shared memory. Lane 8 m + r provides the
//                                              address of row r of matrix m, a multiple of 16.
//   stmatrix<n, transposed>(row, registers)    stores them, with the same addresses
//   mma_m16n8k16<T>(d, a, b)                   d += a b, T is bf16 or f16, d f32
//   mma_m16n8k8_tf32(d, a, b)                  a and b are results of to_tf32()
//   mma_m16n8k8_f32(d, a, b)                   the same shapes in f32, by FMA: not rounded, slow
//
// Layout of fragments (PTX ISA, "Matrix Fragments for mma"), with lane = 4 g + t:
//
//   8x8 matrix              row g, columns 2t and 2t + 1, in one register (transposed: column g,
//                           rows 2t, 2t + 1)
//   d [16, 8]               d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8
//   a [16, 16]              a[0]: row g, columns 2t, 2t + 1; a[1]: row g + 8; a[2], a[3]: the same
//                           rows, columns + 8
//   b [16, 8]               b[0]: rows 2t, 2t + 1, column g; b[1]: rows + 8
//   a [16, 8] (tf32, f32)   a[0]: row g, column t; a[1]: row g + 8; a[2], a[3]: column + 4
//   b [8, 8] (tf32, f32)    b[0]: row t, column g; b[1]: row t + 4
//
// So a row-major a is loaded by ldmatrix<4>, a row-major b by ldmatrix<2, true>, a column-major b
// by ldmatrix<2>.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/matrix.h"
#else
#include "shale/kernels/simt/emu/matrix.h"
#endif
#include "shale/kernels/simt/warp.h"

namespace shale::kernels::SHALE_BACKEND::simt {

__device__ __forceinline__ void mma_m16n8k8_f32(float (&d)[4], const float (&a)[4],
                                                const float (&b)[2]) {
  const int lane = threadIdx.x % kWarpSize, quad = lane & ~3, t = lane % 4;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int high = k / 4;  // 1 if k is in the upper half
    const float a_top = shfl(a[2 * high], quad + k % 4);
    const float a_bottom = shfl(a[2 * high + 1], quad + k % 4);
    const float b_left = shfl(b[high], 4 * (2 * t) + k % 4);
    const float b_right = shfl(b[high], 4 * (2 * t + 1) + k % 4);
    d[0] = fmaf(a_top, b_left, d[0]);
    d[1] = fmaf(a_top, b_right, d[1]);
    d[2] = fmaf(a_bottom, b_left, d[2]);
    d[3] = fmaf(a_bottom, b_right, d[3]);
  }
}

}  // namespace shale::kernels::SHALE_BACKEND::simt
