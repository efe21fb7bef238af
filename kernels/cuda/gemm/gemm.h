#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels {

// The product by the hand-written kernels, as `plan` has it.
//
// Workspace: partial products of a plan with splits, [splits, m, n] in f32, or with shares, of each
// share and shared tile; column sums of every row of tiles where a bias gradient is wanted; and a
// copy of an operand that is not 16-byte aligned, or whose lines are not.
// Throws ShapeError for sizes above 2^31 - 1, UnavailableError for a tile that has no kernel, or
// none for this device, and for shares that its k cannot be cut into.
namespace cuda {
void gemm_by_plan(const Exec& exec, const GemmProblem& problem, const GemmPlan& plan);
int64_t gemm_workspace_bytes(const GemmProblem& problem, const GemmPlan& plan);  // that it reserves
}
namespace emu {
void gemm_by_plan(const Exec& exec, const GemmProblem& problem, const GemmPlan& plan);
int64_t gemm_workspace_bytes(const GemmProblem& problem, const GemmPlan& plan);
}

}  // namespace shale::kernels
