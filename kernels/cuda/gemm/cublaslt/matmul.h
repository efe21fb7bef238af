#pragma once

#include <string>

#include "shale/base/exec.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cuda::cublaslt {

// Returns whether the library computes the problem with the slot's rounding: GEMMs with bias,
// residual or accumulation, which it adds in f32 and rounds once. GELU in its own epilogue is
// excluded, because it is computed from the pre-activation before that is rounded.
bool is_plain(const GemmProblem& problem);

// Runs a plain problem or, for benchmarks, one with GELU in its tanh form or that form's derivative
// by the library's own epilogue, which writes a bias gradient in a's dtype. Returns false, without
// doing anything, if the library has no algorithm. The algorithm is the library's first heuristic
// choice, requested once per device, shape, strides, dtypes and alignment, for the SMs that
// collectives in flight leave free. Algorithms are never timed, because ranks must not choose
// differently. Split-K reductions go through the workspace, in order, so the bits are the same in
// every run.
//
// Workspace: 32 MiB. Throws UnavailableError if the library cannot be loaded.
bool matmul(const Exec& exec, const GemmProblem& problem);

// Returns the version of the library, "13.1.0"; empty if it cannot be loaded, which is logged once.
std::string version();

}  // namespace shale::kernels::cuda::cublaslt
