#pragma once

#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cpu {

// One block of c after its matmul. All pointers are to the block's first element.
struct EpilogueBlock {
  int64_t rows = 0, cols = 0;
  const float* product = nullptr;  // [rows, cols]: result of the matmul
  int64_t product_ld = 0;
  Matrix bias, aux, residual, c;  // omitted operands have null data
  Matrix aux_up, c_up;
  Epilogue epilogue = Epilogue::kNone;
  // [cols], output: column sums of c as stored, over this block's rows.
  float* column_sums = nullptr;
};

// Computes the epilogue of a block. `in` is the dtype of bias, aux and aux_up. residual and c_up
// have c's dtype, which is `in` or f32. c = epilogue(product + bias) + residual, in f32, rounded
// once. With kGelu*, aux receives the pre-activation, and GELU is computed from aux as stored,
// which is what backward reads. With kSwiGlu the product is the up branch and goes to aux_up, and
// aux already has the gate branch. c may be residual or aux.
void gemm_epilogue(DType in, const EpilogueBlock& block);

// Copies `lines` lines of `length` elements of any float dtype, with stride ld, to dense f32.
void widen_lines(const Matrix& from, int64_t lines, int64_t length, float* to);

}  // namespace shale::kernels::cpu
