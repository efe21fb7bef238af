#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

inline constexpr int64_t kAlignment = 16;  // bytes that cp.async copies at a time

inline int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// A matrix with the number and length of its lines in memory.
struct Lines {
  Matrix matrix;
  int64_t count, length;

  int64_t element_bytes() const { return dtype_size(matrix.dtype); }
  bool aligned() const {
    return reinterpret_cast<uintptr_t>(matrix.data) % kAlignment == 0 &&
           (count <= 1 || matrix.ld * element_bytes() % kAlignment == 0);
  }
  int64_t aligned_ld() const { return round_up(length, kAlignment / element_bytes()); }
  int64_t aligned_bytes() const { return count * aligned_ld() * element_bytes(); }
};

inline Lines lines_of(const Matrix& matrix, int64_t rows, int64_t cols) {
  return matrix.transposed ? Lines{matrix, cols, rows} : Lines{matrix, rows, cols};
}

// Copies an operand that cp.async and TMA cannot load to lines of packs, padded with zeros. `to`
// needs aligned_bytes().
Matrix align_lines(const Exec& exec, const Lines& from, void* to);

}  // namespace shale::kernels::SHALE_BACKEND
