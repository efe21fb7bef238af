#include "shale/kernels/random.h"

#include <bit>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Normal numbers by the Box-Muller method, with the CPU's instructions and polynomials
// (kernels/cpu/random.cpp), so the bits are the same: a model's initial values do not depend on the
// device. y is written once.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float horner(float, float c0) {
  return c0;
}
template <typename... Rest>
__device__ __forceinline__ float horner(float x, float c0, Rest... rest) {
  return fmaf(x, horner(x, rest...), c0);
}

// Computes ln x for x in [2^-24, 1].
__device__ __forceinline__ float log_of(float x) {
  // x = 2^k m, m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) carries into the
  // exponent.
  constexpr int32_t kSqrtHalf = 0x3f3504f3;
  const int32_t bits = std::bit_cast<int32_t>(x) - kSqrtHalf;
  const auto k = static_cast<float>(bits >> 23);
  // The subtraction is exact.
  const float f = std::bit_cast<float>((bits & 0x007fffff) + kSqrtHalf) - 1.f;
  const float p = horner(f, 0.333333312f, -0.24999997f, 0.200007157f, -0.166678023f, 0.142490576f,
                         -0.124256873f, 0.116854199f, -0.11479734f, 0.0697161171f);
  const float f2 = f * f;
  // ln(1 + f) = f - f^2 / 2 + f^3 p
  const float tail = fmaf(f2 * f, p, -0.5f * f2);
  const float low = fmaf(k, 0x1.7f7d1cp-20f, tail);
  return fmaf(k, 0x1.62e4p-1f, f) + low;
}

struct SinCos {
  float sin, cos;
};

// Computes sine and cosine of 2 pi u, for u a multiple of 2^-24 in [0, 1). The reduction to a
// quarter turn is exact.
__device__ __forceinline__ SinCos sincos_turns(float u) {
  const float quarters = u * 4.f, shifted = quarters + 0x1.8p23f;
  const auto q = std::bit_cast<uint32_t>(shifted);  // the low two bits of q count quarter turns
  const float f = quarters - (shifted - 0x1.8p23f);
  const float t = f * f;
  const float s =
      f * horner(t, 1.57079633f, -0.645964096f, 0.0796925827f, -0.00468126625f, 0.000158206299f);
  const float c = horner(t, 1.f, -1.23370054f, 0.253669204f, -0.0208600695f, 0.000903628067f);
  // An odd number of quarters swaps sine and cosine; the second bit gives the signs.
  const bool swap = (q & 1) != 0;
  const uint32_t sin_sign = (q & 2) << 30, cos_sign = ((q + 1) & 2) << 30;
  return {std::bit_cast<float>(std::bit_cast<uint32_t>(swap ? c : s) ^ sin_sign),
          std::bit_cast<float>(std::bit_cast<uint32_t>(swap ? s : c) ^ cos_sign)};
}

struct Distribution {
  PhiloxKey key;
  uint32_t stream_low, stream_high;
  float mean, std;
  bool uniform;
};

// Computes elements 4 group to 4 group + 3 of the whole parameter.
__device__ __forceinline__ Floats<4> normals(const Distribution& d, uint64_t group) {
  const PhiloxCounter words =
      philox({static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), d.stream_low,
              d.stream_high},
             d.key);
  Floats<4> values;
  if (d.uniform) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      values.at[k] = fmaf(uniform_f32(words[static_cast<size_t>(k)]), d.std, d.mean);
    }
    return values;
  }
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const float u = uniform_f32(words[static_cast<size_t>(2 * pair)]);
    // 1 - u is exact and never 0.
    const float radius = sqrtf(-2.f * log_of(1.f - u)) * d.std;
    const SinCos angle = sincos_turns(uniform_f32(words[static_cast<size_t>(2 * pair + 1)]));
    values.at[2 * pair] = fmaf(radius, angle.cos, d.mean);
    values.at[2 * pair + 1] = fmaf(radius, angle.sin, d.mean);
  }
  return values;
}

// The part of a parameter that is filled: rows of `run` elements, contiguous in y and `stride`
// elements apart in the parameter.
template <typename T>
struct Box {
  T* y;
  int64_t first, run, stride;
  int64_t groups;  // maximum number of groups of four that a row overlaps
};

// Fills y. A thread computes one group of four; at the ends of a row only a part of the group is
// used.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    random_normal_kernel(Box<T> box, Distribution d, int64_t rows, bool packed) {
  await_previous_grid();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = i / box.groups;
  if (row >= rows) return;
  const int64_t first = box.first + row * box.stride, group = first / 4 + i % box.groups;
  const int64_t begin = group * 4 - first;  // index in the row
  if (begin >= box.run) return;
  const Floats<4> values = normals(d, static_cast<uint64_t>(group));
  T* const to = box.y + row * box.run + begin;
  if (packed && begin + 4 <= box.run) {
    store_floats(to, values);
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (begin + k >= 0 && begin + k < box.run) to[k] = from_float<T>(values.at[k]);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const RandomNormalArgs& a) {
  const int64_t count = a.y.numel();
  if (count == 0) return;
  const Distribution d = {.key = rng_key(a.seed, RngDomain::kInit),
                          .stream_low = static_cast<uint32_t>(a.stream),
                          .stream_high = static_cast<uint32_t>(a.stream >> 32),
                          .mean = a.mean,
                          .std = a.std,
                          .uniform = a.uniform};
  const bool is_box = a.run > 0;
  const int64_t run = is_box ? a.run : count, rows = count / run;
  const int64_t groups = is_box ? run / 4 + 2 : (a.first + count + 3) / 4 - a.first / 4;
  dispatch_float(a.y.dtype, [&]<typename T>() {
    const bool packed = a.first % 4 == 0 && a.stride % 4 == 0 && (!is_box || run % 4 == 0) &&
                        reinterpret_cast<uintptr_t>(a.y.data) % (4 * sizeof(T)) == 0;
    const Box<T> box{
        .y = a.y.as<T>(), .first = a.first, .run = run, .stride = a.stride, .groups = groups};
    simt::launch(random_normal_kernel<T>,
                 {.grid = ceil_div(rows * groups, kThreads), .block = kThreads}, exec, box, d, rows,
                 packed);
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
