#include "shale/test/support/wrong_kernels.h"

#include "shale/kernels/cuda/run.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/registry.h"

namespace shale::test {
namespace {

using namespace kernels;

// Overwrites the first row of a result with ones.
void spoil(const Exec& exec, View row) {
  for (int i = 0; i + 1 < row.ndim(); ++i) row.shape[i] = 1;
  emu::run(exec, FillArgs{.y = make_view(row.data, row.dtype, {row.cols()}), .value = 1});
}

void wrong_gemm(const Exec& exec, const GemmArgs& args) {
  emu::run(exec, args);
  const GemmProblem problem = gemm_problem(exec, args);
  const GemmPlan plan = args.plan != nullptr ? *args.plan : gemm_plan(problem, gemm_means(exec));
  if (is_hopper(plan.tile) && problem.m > 0) spoil(exec, args.c);
}

void wrong_epilogue(const Exec& exec, const GemmArgs& args) {
  emu::run(exec, args);
  if (args.epilogue != Epilogue::kNone && args.c.numel() > 0) spoil(exec, args.c);
}

void wrong_attention(const Exec& exec, const AttentionFwdArgs& args) {
  emu::run(exec, args);
  if (exec.device.arch == 90 && args.q.dtype != DType::kF32) spoil(exec, args.out);
}

void wrong_mul(const Exec& exec, const MulArgs& args) {
  emu::run(exec, args);
  spoil(exec, args.y);
}

}  // namespace

WrongKernels::WrongKernels(unsigned which) {
  emu::register_kernels();
  if ((which & kHopperGemm) != 0) gemm.set(DeviceType::kEmu, wrong_gemm);
  if ((which & kEpilogues) != 0) gemm.set(DeviceType::kEmu, wrong_epilogue);
  if ((which & kHopperAttention) != 0) attention_fwd.set(DeviceType::kEmu, wrong_attention);
  if ((which & kMul) != 0) mul.set(DeviceType::kEmu, wrong_mul);
}

WrongKernels::~WrongKernels() {
  for (const char* slot : {"gemm", "attention_fwd", "mul"}) emu::leave_out(slot, 0);
}

}  // namespace shale::test
