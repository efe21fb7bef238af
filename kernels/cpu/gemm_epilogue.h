#pragma once

#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cpu {

// One block of c after its product, with every pointer at the block's first element.
struct EpilogueBlock {
  int64_t rows = 0, cols = 0;
  const float* product = nullptr;  // [rows, cols]
  int64_t product_ld = 0;
  Matrix bias, aux, residual, c;  // null data where left out
  Matrix aux_up, c_up;
  Epilogue epilogue = Epilogue::kNone;
  float* column_sums = nullptr;  // [cols], written: sums of c as stored, from the first row on
};

// `in` is the dtype of bias, aux and aux_up; that of residual and c_up is c's, which is `in` or
// f32. c = epilogue(product + bias) + residual, in f32, rounded once. With kGelu*, aux gets the
// argument and GELU is taken of aux as stored, which is what backward sees. With kSwiGlu the
// product is up's, which goes to aux_up, and aux has the gate's already. c may be residual or aux.
void gemm_epilogue(DType in, const EpilogueBlock& block);

// Copies `lines` lines of `length` elements of any float dtype, ld apart, to dense f32.
void widen_lines(const Matrix& from, int64_t lines, int64_t length, float* to);

}  // namespace shale::kernels::cpu
