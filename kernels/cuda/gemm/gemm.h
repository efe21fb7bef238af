#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels {

// Runs a GEMM with the hand-written kernels, according to `plan`.
//
// Workspace: with splits, the partial results [splits, m, n] in f32; with shares, the partial
// results of each share and shared tile. If there is a bias gradient, also the column sums of every
// tile row. If the address or the lines of an operand are not 16-byte aligned, also a copy of it.
//
// Throws ShapeError for sizes above 2147483647. Throws UnavailableError for a tile without a kernel
// (or without one for this device) and for shares that can_cut() rejects.
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
