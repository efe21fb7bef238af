#pragma once

#include <compare>

#include "shale/kernels/gemm.h"

namespace shale::kernel_check {

// Sizes and layout of a GEMM c [m, n] = a [m, k] · b [k, n], or c += a · b.
struct MatmulSpec {
  int64_t m = 0, n = 0, k = 0;
  // Strides, in elements: from row to row, or from column to column of a transposed matrix.
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool a_transposed = false, b_transposed = false;
  DType in = DType::kF32;   // dtype of a and b
  DType out = DType::kF32;  // dtype of c
  bool accumulate = false;

  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
  // Return the bytes from the first element of an operand to its last element, including gaps.
  int64_t a_bytes() const;
  int64_t b_bytes() const;
  int64_t c_bytes() const;
  friend auto operator<=>(const MatmulSpec&, const MatmulSpec&) = default;
};

// Returns the spec of the GEMM that this call computes, without its epilogue.
MatmulSpec matmul_spec(const kernels::GemmArgs& args);

}  // namespace shale::kernel_check
