#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cpu {

// A block of c = a · b in f32, for one thread. a and b have any float dtype.
struct PackedMatmul {
  Matrix a, b;  // from the block's first row of a, and its first column of b
  int64_t rows = 0, cols = 0, k = 0;
  bool tf32 = false;   // round a and b to tf32
  float* c = nullptr;  // [rows, cols], rows have the stride ldc
  int64_t ldc = 0;
};

// Returns the floats of scratch memory that a block of these sizes needs.
size_t packed_scratch_floats(int64_t rows, int64_t k, bool a_transposed);

// Computes the block. Each element is a sum over k in ascending order, whose bits depend only on k
// and the CPU's instruction set. scratch: packed_scratch_floats() floats, aligned to 64 bytes.
void run_packed(const PackedMatmul& matmul, float* scratch);

}  // namespace shale::kernels::cpu
