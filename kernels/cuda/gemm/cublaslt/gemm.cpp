#include "shale/kernels/cuda/gemm/cublaslt/gemm.h"

#include "shale/base/error.h"
#include "shale/kernels/cuda/gemm/cublaslt/library.h"
#include "shale/kernels/cuda/gemm/cublaslt/matmul.h"
#include "shale/kernels/cuda/gemm/gemm.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/elementwise.h"

namespace shale::kernels::cuda::cublaslt {
namespace {

// Computes aux = a·b + bias with the library, rounded to the dtype of aux, then c = gelu(aux).
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

bool by_library(const Exec& exec, const GemmArgs& args, const GemmProblem& p) {
  if (library() == nullptr) return false;
  if (is_plain(p)) return matmul(exec, p);
  const bool gelu = p.epilogue == Epilogue::kGeluTanh || p.epilogue == Epilogue::kGeluErf;
  return gelu && gelu_in_two(exec, args, p);
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

}  // namespace shale::kernels::cuda::cublaslt
