#include <bit>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/one_bit.h"
#include "shale/kernels/simt/simt.h"

// 1-bit compression. A warp owns a block of kSignBlock elements. Lane l keeps elements l, l + 32,
// ... in registers until the warp knows their scale. Loads are of whole lines, a ballot of the
// lanes is a word of signs, and memory is read and written once. The bits equal those of the CPU.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kOfLane = kSignBlock / kWarpSize;  // elements per lane
static_assert(kOfLane == kWarpSize && kSignWords == 1 + kWarpSize);

// Returns scale * sign of element `lane` of word k of a packed block.
__device__ __forceinline__ float unpacked_at(const int32_t* block, int k, int lane) {
  const float scale = std::bit_cast<float>(block[0]);
  const auto word = static_cast<uint32_t>(block[1 + k]);
  return (word >> lane & 1u) != 0 ? scale : -scale;
}

// Output of a packing kernel, for a vector of n elements.
struct Packing {
  const float* mask;
  float* owed;
  int32_t* packed;
  int64_t n;
};

// Packs a block, by a warp. element(i, k) returns element i of the vector before masking; k is the
// word to which the lane's element belongs.
template <class Element>
__device__ __forceinline__ void pack_block(const Packing& to, int64_t block,
                                           const Element& element) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t begin = block * kSignBlock + lane;
  float u[kOfLane];
  float sum = 0;
  int count = 0;
  uint32_t live = 0;  // bit k: the lane's element in word k is not masked
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int64_t i = begin + k * kWarpSize;
    const bool counts = i < to.n && to.mask[i] != 0;
    u[k] = counts ? element(i, k) : 0.f;
    live |= static_cast<uint32_t>(counts) << k;
    count += counts ? 1 : 0;
    sum += fabsf(u[k]);
  }
  sum = warp_sum(sum), count = warp_sum(count);
  const float scale = count > 0 ? sum / static_cast<float>(count) : 0.f;
  uint32_t word = 0;  // word number `lane` of the signs
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const uint32_t signs = ballot(u[k] >= 0);
    if (lane == k) word = signs;
    const int64_t i = begin + k * kWarpSize;
    const float sent = u[k] >= 0 ? scale : -scale;
    if (i < to.n) to.owed[i] = (live >> k & 1u) != 0 ? u[k] - sent : 0.f;
  }
  int32_t* const packed = to.packed + block * kSignWords;
  packed[1 + lane] = static_cast<int32_t>(word);
  if (lane == 0) packed[0] = std::bit_cast<int32_t>(scale);
}

__device__ __forceinline__ int64_t block_of_warp() {
  return int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
}

template <typename Grad>
__global__ void __launch_bounds__(kThreads)
    sign_pack_kernel(Packing to, const float* value, const Grad* grad, float value_factor,
                     float grad_factor, const StepState* step) {
  await_previous_grid();
  const int64_t block = block_of_warp();
  if (step->non_finite != 0 || block * kSignBlock >= to.n) return;
  const float clip = step->clip_factor;
  pack_block(to, block, [&](int64_t i, int) {
    const float u = fmaf(value_factor, value[i], to.owed[i]);
    return grad == nullptr ? u : fmaf(grad_factor, clip * to_float(grad[i]), u);
  });
}

__global__ void __launch_bounds__(kThreads)
    sign_mean_kernel(Packing to, const int32_t* parts, int64_t count, int64_t stride,
                     const StepState* step) {
  await_previous_grid();
  const int64_t block = block_of_warp();
  if (step->non_finite != 0 || block * kSignBlock >= to.n) return;
  const int lane = threadIdx.x % kWarpSize;
  const float share = 1.f / static_cast<float>(count);
  pack_block(to, block, [&](int64_t i, int k) {
    const int32_t* of_part = parts + block * kSignWords;
    float sum = unpacked_at(of_part, k, lane);
    for (int64_t p = 1; p < count; ++p) {
      of_part += stride;
      sum += unpacked_at(of_part, k, lane);
    }
    return fmaf(share, sum, to.owed[i]);
  });
}

__global__ void __launch_bounds__(kThreads)
    sign_unpack_kernel(const int32_t* packed, const float* mask, float* value, int64_t n,
                       const StepState* step) {
  await_previous_grid();
  const int64_t block = block_of_warp();
  if (step->non_finite != 0 || block * kSignBlock >= n) return;
  const int lane = threadIdx.x % kWarpSize;
  const int32_t* const from = packed + block * kSignWords;
#pragma unroll 4
  for (int k = 0; k < kOfLane; ++k) {
    const int64_t i = block * kSignBlock + k * kWarpSize + lane;
    if (i < n) value[i] = mask[i] != 0 ? unpacked_at(from, k, lane) : 0.f;
  }
}

int64_t grid_of(int64_t elements) {
  return ceil_div(sign_blocks(elements), kWarps);
}

}  // namespace

template <>
void run(const Exec& exec, const SignPackArgs& a) {
  step_of("sign_pack", exec);
  const int64_t n = a.value.numel();
  if (n == 0) return;
  const Packing to = {a.mask.as<float>(), a.owed.as<float>(), a.packed.as<int32_t>(), n};
  const auto with = [&]<typename Grad>(const Grad* grad) {
    simt::launch(sign_pack_kernel<Grad>, {.grid = grid_of(n), .block = kThreads}, exec, to,
                 a.value.as<float>(), grad, a.value_factor, a.grad_factor, exec.step);
  };
  if (a.grad.defined() && a.grad.dtype == DType::kBF16) return with(a.grad.as<bf16>());
  with(a.grad.defined() ? a.grad.as<float>() : nullptr);
}

template <>
void run(const Exec& exec, const SignMeanArgs& a) {
  step_of("sign_mean", exec);
  const int64_t n = a.owed.numel();
  if (n == 0) return;
  const Packing to = {a.mask.as<float>(), a.owed.as<float>(), a.packed.as<int32_t>(), n};
  simt::launch(sign_mean_kernel, {.grid = grid_of(n), .block = kThreads}, exec, to,
               a.parts.as<int32_t>(), a.parts.size(0), a.parts.stride(0), exec.step);
}

template <>
void run(const Exec& exec, const SignUnpackArgs& a) {
  step_of("sign_unpack", exec);
  const int64_t n = a.value.numel();
  if (n == 0) return;
  simt::launch(sign_unpack_kernel, {.grid = grid_of(n), .block = kThreads}, exec,
               a.packed.as<int32_t>(), a.mask.as<float>(), a.value.as<float>(), n, exec.step);
}

}  // namespace shale::kernels::SHALE_BACKEND
