#pragma once

#include <string>

#include "shale/base/exec.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cuda::cublaslt {

// Problems that the library solves with the slot's roundings: products with bias, residual or
// accumulation, which it adds in f32 and rounds once. GELU in its own epilogue is not among them:
// it is taken of the pre-activation before that is rounded.
bool is_plain(const GemmProblem& problem);

// Runs a plain problem, or, for benchmarks, one with GELU in its tanh form or that form's
// derivative by the library's own epilogue, which writes a bias gradient in a's dtype. False, and
// nothing done, where the library has no algorithm for it. The algorithm is the library's first
// guess, asked for once per device, shape, strides, dtypes and alignment, and never timed: ranks
// must not choose differently. Reductions of split k go through the workspace, in order: the bits
// are the same in every run.
//
// Workspace: 32 MiB. Throws UnavailableError where the library cannot be loaded.
bool matmul(const Exec& exec, const GemmProblem& problem);

// Version of the library, "13.1.0"; empty where it cannot be loaded, which the log then says, once.
std::string version();

}  // namespace shale::kernels::cuda::cublaslt
