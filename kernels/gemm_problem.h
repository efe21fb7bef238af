#pragma once

#include "shale/kernels/gemm.h"

namespace shale::kernels {

// A matrix in memory: element (i, j) is data[i * ld + j], or data[j * ld + i] if transposed.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t ld = 0;
  bool transposed = false;

  void* at(int64_t i, int64_t j) const {
    const int64_t index = transposed ? j * ld + i : i * ld + j;
    return static_cast<char*>(data) + index * dtype_size(dtype);
  }
};

// GemmArgs after all checks, with strides in one form. Omitted arguments have null data.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b, c, aux, residual;
  Matrix bias, bias_grad;  // vectors, as matrices with one row
  Matrix b_up, aux_up, c_up;
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;
  bool accumulate_bias_grad = false;
  bool tf32 = false;  // round the f32 operands to tf32
};

// Returns whether Exec::tf32 applies to this GEMM. Throws UnavailableError on a GPU whose tensor
// cores have no tf32.
bool takes_tf32(const Exec& exec, const GemmProblem& problem);

// Throws ShapeError or DTypeError, which names the argument, what was expected and what was found.
GemmProblem gemm_problem(const GemmArgs& args);
// Like gemm_problem(args), and sets tf32 to takes_tf32().
GemmProblem gemm_problem(const Exec& exec, const GemmArgs& args);

}  // namespace shale::kernels
