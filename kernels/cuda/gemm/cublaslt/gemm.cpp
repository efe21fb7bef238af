#include "shale/kernels/cuda/gemm/cublaslt/gemm.h"

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/kernels/cuda/gemm/cublaslt/library.h"
#include "shale/kernels/cuda/gemm/cublaslt/matmul.h"
#include "shale/kernels/cuda/gemm/gemm.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/elementwise.h"

namespace shale::kernels::cuda::cublaslt {
namespace {

// Computes aux = a·b + bias with cuBLASLt, rounded to the dtype of aux, then c = gelu(aux).
bool gelu_in_two(const Exec& exec, const GemmArgs& args, const GemmProblem& p) {
  const bool passable = !args.residual.defined() && args.aux.contiguous() && args.c.contiguous();
  if (!passable) return false;
  GemmProblem product = p;
  product.epilogue = Epilogue::kNone;
  product.c = p.aux;
  product.aux = {};
  if (!is_plain(product) || !matmul(exec, product)) return false;
  gelu_fwd(exec, {.x = args.aux, .y = args.c, .exact = p.epilogue == Epilogue::kGeluErf});
  return true;
}

// Computes aux = a·b and aux_up = a·b_up with cuBLASLt, then c = silu(aux) * aux_up.
bool swiglu_in_three(const Exec& exec, const GemmArgs& args, const GemmProblem& p) {
  const bool passable = args.c.dtype == args.aux.dtype && args.aux.contiguous() &&
                        args.aux_up.contiguous() && args.c.contiguous();
  if (!passable) return false;
  GemmProblem gate = p;
  gate.epilogue = Epilogue::kNone;
  gate.c = p.aux;
  gate.aux = gate.aux_up = gate.b_up = {};
  GemmProblem up = gate;
  up.b = p.b_up, up.c = p.aux_up;
  if (!is_plain(gate) || !matmul(exec, gate) || !matmul(exec, up)) return false;
  swiglu_fwd(exec, {.gate = args.aux, .up = args.aux_up, .y = args.c});
  return true;
}

bool by_library(const Exec& exec, const GemmArgs& args, const GemmProblem& p) {
  if (library() == nullptr) return false;
  if (is_plain(p)) return matmul(exec, p);
  if (p.epilogue == Epilogue::kSwiGlu) return swiglu_in_three(exec, args, p);
  const bool gelu = p.epilogue == Epilogue::kGeluTanh || p.epilogue == Epilogue::kGeluErf;
  return gelu && gelu_in_two(exec, args, p);
}

// Throws ShapeError if lines of a matrix do not begin at multiples of 16 bytes.
void check_aligned(const char* op, const char* name, const View& matrix) {
  if (!matrix.defined()) return;
  const auto address = reinterpret_cast<uintptr_t>(matrix.data);
  const int64_t line = matrix.stride(0) * dtype_size(matrix.dtype);
  if (address % 16 == 0 && line % 16 == 0) return;
  throw ShapeError(cat(op, ": ", name, " is ", matrix, " with strides ", matrix.strides,
                       ", expected rows that begin at multiples of 16 bytes, for cuBLASLt"));
}

}  // namespace

void gemm(const Exec& exec, const GemmArgs& args) {
  const GemmProblem p = gemm_problem(exec, args);
  const bool asked = args.plan != nullptr && args.plan->engine == GemmEngine::kVendor;
  if (asked) required_library();
  GemmMeans means = gemm_means(exec);
  means.vendor = library() != nullptr;
  const GemmPlan plan = args.plan != nullptr ? *args.plan : gemm_plan(p, means);
  if (plan.engine == GemmEngine::kVendor && by_library(exec, args, p)) return;
  if (asked) {
    throw UnavailableError(cat("gemm: cuBLASLt ", version(), " has no kernel for ", args.a,
                               " times ", args.b, " into ", args.c, " with this epilogue"));
  }
  gemm_by_plan(exec, p, plan);
}

void fp8_gemm(const Exec& exec, const Fp8GemmArgs& args) {
  constexpr const char* kOp = "fp8_gemm";
  const std::string why = why_no_fp8(exec.device, args.a.blocks);
  if (!why.empty()) throw UnavailableError(cat(kOp, ": ", why));
  required_library(kOp);
  if (args.a.lines() == 0 || args.b.lines() == 0) return;
  if (args.a.length() == 0) return gemm(exec, bf16_product(args, nullptr, nullptr));
  const int64_t unit = fp8_lines_unit(exec.device);
  if (args.b.lines() % unit != 0) {
    throw ShapeError(cat(kOp, ": b is ", args.b.codes, ", expected a multiple of ", unit,
                         " rows for cuBLASLt on compute capability ",
                         capability_text(exec.device.arch)));
  }
  check_aligned(kOp, "c", args.c);
  check_aligned(kOp, "residual", args.residual);
  if (matmul(exec, args)) return;
  throw UnavailableError(cat(kOp, ": cuBLASLt ", version(), " has no kernel for ", args.a.codes,
                             " times ", args.b.codes, " transposed into ", args.c, " on ",
                             exec.device, "; use a later version, or --dtype bf16"));
}

}  // namespace shale::kernels::cuda::cublaslt
