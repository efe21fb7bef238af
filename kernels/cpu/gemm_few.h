#pragma once

#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cpu {

// Maximum rows of c for which a GEMM with a transposed b is computed as dot products. Such GEMMs,
// as in generation, spend their time on reading b.
inline constexpr int64_t kDotRows = 8;

// Computes product [rows, cols] = a [rows, k] · b [k, cols]; a is dense f32, b is transposed, of
// any float dtype. Each element is one sum over k, whose order depends only on k and the CPU, not
// on rows, cols or the position of the block.
void dot_products(const float* a, int64_t rows, int64_t k, const Matrix& b, int64_t cols,
                  float* product, int64_t product_ld);

}  // namespace shale::kernels::cpu
