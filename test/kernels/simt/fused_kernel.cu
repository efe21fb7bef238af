#include "shale/test/kernels/simt/fused_kernel.h"

#include "shale/kernels/cuda/pointwise/operands.cuh"
#include "shale/kernels/pointwise_source.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

#include "shale/kernels/cuda/pointwise/four.cuh"
#include "shale/kernels/pointwise_functions-inl.h"
#include "shale/test/fixtures/fused_kernel.txt"

}  // namespace

void run_fused_kernel(const Exec& exec, const PointwiseArgs& args) {
  const PointwiseOperands operands = pointwise_operands(args);
  constexpr int64_t kBlock = int64_t{4} * kPointwiseSourceThreads;
  simt::launch(fused_kernel,
               {.grid = ceil_div(operands.n, kBlock), .block = kPointwiseSourceThreads}, exec,
               operands);
}

}  // namespace shale::kernels::SHALE_BACKEND
