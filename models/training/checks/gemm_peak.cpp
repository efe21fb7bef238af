#include "shale/models/training/checks/gemm_peak.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "shale/kernels/gemm.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::models {

namespace {

double fastest_product(Context& context, DType dtype) {
  constexpr int64_t kSize = 2048;
  constexpr int kRuns = 5;  // number of runs; the first one compiles the kernel
  const Tensor a = zeros(context, {kSize, kSize}, dtype, MemoryTag::kWorkspace);
  const Tensor b = zeros(context, {kSize, kSize}, dtype, MemoryTag::kWorkspace);
  const Tensor c = zeros(context, {kSize, kSize}, dtype, MemoryTag::kWorkspace);
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    kernels::gemm(context.exec(), {.a = a, .b = b, .c = c});
    context.synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (run > 0) best = std::min(best, elapsed.count());
  }
  return 2.0 * kSize * kSize * kSize / best;
}

}  // namespace

double measure_gemm_peak(Context& context, DType dtype) {
  const double peak = fastest_product(context, dtype);
  // Frees the operands, so that the memory statistics of the run exclude them.
  context.allocator().release_cached();
  context.allocator().reset_peak();
  return peak;
}

}  // namespace shale::models
