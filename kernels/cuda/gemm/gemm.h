#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels {

// Runs a GEMM with the hand-written kernels, according to `plan`.
//
// Workspace: partial results of a plan with splits, [splits, m, n] in f32, or, with shares, of each
// share and shared tile; column sums of every tile row if there is a bias gradient; and a copy of
// an operand whose address or lines are not 16-byte aligned. Throws ShapeError for sizes above 2^31
// - 1, and UnavailableError for a tile without a kernel (or without one for this device) and for
// shares that can_cut() rejects.
namespace cuda {
void gemm_by_plan(const Exec& exec, const GemmProblem& problem, const GemmPlan& plan);
// Returns the bytes of workspace that gemm_by_plan() reserves.
int64_t gemm_workspace_bytes(const GemmProblem& problem, const GemmPlan& plan);
}  // namespace cuda
namespace emu {
void gemm_by_plan(const Exec& exec, const GemmProblem& problem, const GemmPlan& plan);
int64_t gemm_workspace_bytes(const GemmProblem& problem, const GemmPlan& plan);
}  // namespace emu

}  // namespace shale::kernels
