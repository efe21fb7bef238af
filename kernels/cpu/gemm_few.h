#pragma once

#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cpu {

// Rows of c, up to which a product with a transposed b is best made of dot products: as in
// generation, all there is to do is to read b.
inline constexpr int64_t kDotRows = 8;

// product [rows, cols] = a [rows, k] · b [k, cols]: a dense in f32, b transposed, of any float
// dtype. Each element is one sum over k, whose order depends on k and the CPU alone, not on rows,
// cols or where the block lies.
void dot_products(const float* a, int64_t rows, int64_t k, const Matrix& b, int64_t cols,
                  float* product, int64_t product_ld);

}  // namespace shale::kernels::cpu
