#pragma once

#include <string>

#include "shale/base/exec.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels::cuda::cublaslt {

// Returns whether cuBLASLt computes the problem with the rounding that the gemm slot defines. It
// does for GEMMs with bias, residual or accumulation, which it adds in f32 and rounds once. It does
// not for GELU in its own epilogue, because it computes GELU from the pre-activation before that is
// rounded.
bool is_plain(const GemmProblem& problem);

// Runs a plain problem. For benchmarks, it also runs problems with GELU in its tanh form, or with
// that form's derivative, by cuBLASLt's own epilogue, which writes a bias gradient in a's dtype.
// Returns false, without doing anything, if cuBLASLt has no algorithm.
//
// The algorithm is cuBLASLt's first heuristic choice, requested once per device, shape, strides,
// dtypes and alignment, for the SMs that collectives in flight leave free. Algorithms are never
// timed, because ranks must not choose differently. Split-K reductions go through the workspace, in
// order, so the bits are the same in every run.
//
// Workspace: 32 MiB. Throws UnavailableError if cuBLASLt cannot be loaded.
bool matmul(const Exec& exec, const GemmProblem& problem);

// Like matmul() above, for an fp8 GEMM; no size may be 0. For fp8, NVIDIA's manual of
// cublasLtMatmul() requires:
//
// - The compute and scale types are f32, and a bias is bf16.
// - The first operand is transposed, the second is not, and at most one of them is E5M2.
// - Pointers and lines of all matrices are multiples of 16 bytes, so K and N are multiples of 16.
// - Block scales need version 12.9, dense rows of scales, and compute capability 9.0.
//
// CUBLASLT_MATMUL_DESC_FAST_ACCUM stays off, which is the default: cuBLASLt then promotes sums to
// f32 while it goes along k.
bool matmul(const Exec& exec, const Fp8GemmArgs& args);
// Returns false if cuBLASLt has no algorithm, so that matmul() would return false. Runs nothing.
bool has_algorithm(const Exec& exec, const Fp8GemmArgs& args);

// Returns the version of the library, "13.1.0"; empty if it cannot be loaded, which is logged once.
std::string version();

}  // namespace shale::kernels::cuda::cublaslt
