#pragma once

#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

__device__ __forceinline__ float fma_saturated(float a, float b, float c) {
  float result;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
  return result;
}

__device__ __forceinline__ float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// Adds the bits in inline PTX: if C++ adds them, ptxas finds too few registers for matmuls that are
// in flight at the same time (C7511).
__device__ __forceinline__ float add_exponent(float x, float n) {
  float result;
  asm("{\n"
      ".reg .b32 power, bits;\n"
      "mov.b32 power, %2;\n"
      "mov.b32 bits, %1;\n"
      "shl.b32 power, power, 23;\n"
      "add.s32 bits, bits, power;\n"
      "mov.b32 %0, bits;\n"
      "}"
      : "=f"(result)
      : "f"(x), "f"(n));
  return result;
}

}  // namespace shale::kernels::cuda::simt
