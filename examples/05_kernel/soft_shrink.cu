// Soft shrinkage on GPUs. Each thread computes one element.
#include <shale/simt/simt.h>

#include "soft_shrink_slots.h"

namespace example::SHALE_BACKEND {
namespace {

using namespace shale::kernels::SHALE_BACKEND::simt;

constexpr int kBlock = 256;  // threads

__device__ __forceinline__ int64_t this_element() {
  return int64_t{blockIdx.x} * kBlock + threadIdx.x;
}

__global__ void fwd_kernel(const float* x, float* y, int64_t n, float s) {
  await_previous_grid();
  const int64_t i = this_element();
  if (i < n) y[i] = x[i] > s ? x[i] - s : x[i] < -s ? x[i] + s : 0.0f;
}

__global__ void bwd_kernel(const float* x, const float* dy, float* dx, int64_t n, float s) {
  await_previous_grid();
  const int64_t i = this_element();
  if (i < n) dx[i] = fabsf(x[i]) > s ? dy[i] : 0.0f;
}

void fwd(const shale::Exec& exec, const SoftShrinkFwdArgs& a) {
  const int64_t n = a.x.numel();
  if (n == 0) return;  // CUDA rejects an empty grid
  launch(fwd_kernel, {.grid = ceil_div(n, kBlock), .block = kBlock}, exec, a.x.as<float>(),
         a.y.as<float>(), n, a.s);
}

void bwd(const shale::Exec& exec, const SoftShrinkBwdArgs& a) {
  const int64_t n = a.x.numel();
  if (n == 0) return;
  launch(bwd_kernel, {.grid = ceil_div(n, kBlock), .block = kBlock}, exec, a.x.as<float>(),
         a.dy.as<float>(), a.dx.as<float>(), n, a.s);
}

const bool registered = [] {
  soft_shrink_fwd.set(kDevice, fwd);
  soft_shrink_bwd.set(kDevice, bwd);
  return true;
}();

}  // namespace
}  // namespace example::SHALE_BACKEND
