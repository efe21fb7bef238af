#include <algorithm>
#include <bit>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/optim/optim_parts.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/dynamic_lookup.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/simt/simt.h"

// AdamW with 8-bit moments. A warp owns kOfWarp elements at a time, eight per lane. The new moments
// stay in registers until the lanes that share a scale have computed it, so memory is read and
// written once: 18 bytes per element with a 16-bit parameter. Codes are decoded and found with
// tables in shared memory, so thread blocks process many elements. The bits equal those of the CPU.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kOfLane = 8;  // elements per lane
constexpr int kOfWarp = kOfLane * kWarpSize;
static_assert(kOfWarp % kMomentBlock == 0);

// The tables for one moment; kernels copy them from device memory to shared memory.
struct MomentMap {
  DynamicMap map;
  DynamicLookup lookup;
};
__device__ constexpr MomentMap kSigned{kSignedMap, kSignedLookup};
__device__ constexpr MomentMap kUnsigned{kUnsignedMap, kUnsignedLookup};

// The tables for one moment in shared memory.
struct MomentTable {
  float levels[256];
  float boundary[256];
  uint8_t level_at[DynamicLookup::kCells];

  __device__ __forceinline__ void fill(const MomentMap& from) {
    for (int i = threadIdx.x; i < 256; i += kThreads) {
      levels[i] = from.map.levels[static_cast<size_t>(i)];
      boundary[i] = from.lookup.boundary[static_cast<size_t>(i)];
    }
    for (int i = threadIdx.x; i < DynamicLookup::kCells; i += kThreads) {
      level_at[i] = static_cast<uint8_t>(from.lookup.level_at[static_cast<size_t>(i)]);
    }
  }

  // Returns the index of the level nearest to a magnitude in [0, 1]. Level 0 is the number 0.
  __device__ __forceinline__ int nearest_level(float magnitude) const {
    // For a NaN the cell must not be outside of the table. The result does not matter then, because
    // the parameter has become NaN already.
    constexpr int kFirst = DynamicLookup::kFirstCell, kLast = DynamicLookup::kCells - 1;
    const int above = std::bit_cast<int>(magnitude) / 65536 - kFirst;
    const int cell = above < 0 ? 0 : above > kLast ? kLast : above;
    const int level = level_at[cell];
    return magnitude >= boundary[level] ? level + 1 : level;
  }
};

struct MomentTables {
  MomentTable m, v;
};

__device__ __forceinline__ uint8_t signed_code(const MomentTable& table, float value,
                                               float inverse) {
  constexpr int kZero = kSignedMap.zero;
  const int level = table.nearest_level(fabsf(value) * inverse);
  // The map has 1 but not -1, so negative levels are clamped.
  const int code = value < 0 ? kZero - (level < kZero ? level : kZero) : kZero + level;
  return static_cast<uint8_t>(code);
}

__device__ __forceinline__ uint8_t unsigned_code(const MomentTable& table, float value,
                                                 float inverse) {
  const int level = table.nearest_level(value * inverse);
  return static_cast<uint8_t>(value > 0 && level < 1 ? 1 : level);
}

template <typename Grad, typename Param>
struct Step8 {
  Weights<Param> weights;
  Typed<Grad> grad;
  Typed<uint8_t> m, v;
  float *m_scale, *v_scale;
  const StepState* step;
  AdamWNumbers numbers;
  int64_t count;

  Step8(const Exec& exec, const AdamW8bitArgs& a)
      : weights(a.master, a.param),
        grad(a.grad),
        m(a.m),
        v(a.v),
        m_scale(a.m_scale.as<float>()),
        v_scale(a.v_scale.as<float>()),
        step(exec.step),
        numbers(a),
        count(a.master.numel()) {}

  bool packed() const {
    constexpr int kCount = 4;
    return weights.packed(kCount) && allows_packs(grad, kCount) && allows_packs(m, kCount) &&
           allows_packs(v, kCount);
  }

  // Prefetches, by a warp, the warp's elements from `begin` on.
  __device__ __forceinline__ void prefetch(int64_t begin) const {
    const int lane = threadIdx.x % kWarpSize;
    const int64_t last = begin + kOfWarp, end = last < count ? last : count;
    weights.prefetch(begin, end, lane);
    prefetch_run(grad.data, begin, end, lane);
    prefetch_run(m.data, begin, end, lane);
    prefetch_run(v.data, begin, end, lane);
  }
  // Processes, n at a time, the warp's elements, which begin at element `begin` of the span. `size`
  // is the number of elements from there to the end of the span.
  template <int n>
  __device__ __forceinline__ void run(const MomentTables& tables, int64_t begin, int size) const;
};

// The scale of moments whose largest magnitude is given; zero if it is below kSmallestScale.
struct NewScale {
  float scale, inverse;
  __device__ __forceinline__ explicit NewScale(float largest)
      : scale(largest >= kSmallestScale ? largest : 0.f), inverse(scale > 0 ? 1.f / scale : 0.f) {}
};

template <typename Grad, typename Param>
template <int n>
__device__ __forceinline__ void Step8<Grad, Param>::run(const MomentTables& tables, int64_t begin,
                                                        int size) const {
  constexpr int kPacks = kOfLane / n;
  // A scale covers kOfScale packs. They are spread over kLanes lanes, with kShared packs each.
  constexpr int kOfScale = kMomentBlock / n;
  constexpr int kLanes = kOfScale < kWarpSize ? kOfScale : kWarpSize;
  constexpr int kShared = kOfScale / kLanes;
  const int lane = threadIdx.x % kWarpSize;
  const auto place = [&](int k) { return (k * kWarpSize + lane) * n; };
  const auto scale_at = [&](int k) { return (begin + place(k)) / kMomentBlock; };
  const auto has_scale = [&](int k) { return place(k) / kMomentBlock * kMomentBlock < size; };
  Floats<n> w[kPacks], g[kPacks];
  Pack<uint8_t, n> m_codes[kPacks], v_codes[kPacks];
  float old_m_scale[kPacks], old_v_scale[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (place(k) >= size) continue;
    const int64_t i = begin + place(k);
    w[k] = weights.template load<n>(i);
    g[k] = grad.template load<n>(i);
    m_codes[k] = load_pack<n>(m.data + i), v_codes[k] = load_pack<n>(v.data + i);
    old_m_scale[k] = m_scale[scale_at(k)], old_v_scale[k] = v_scale[scale_at(k)];
  }
  __syncwarp();  // all lanes have read the old scales
  const AdamWStep element(numbers, *step);
#pragma unroll
  for (int first = 0; first < kPacks; first += kShared) {
    Floats<n> new_m[kShared], new_v[kShared];
    float m_largest = 0, v_largest = 0;
#pragma unroll
    for (int k = first; k < first + kShared; ++k) {
      if (place(k) >= size) continue;
      Floats<n>&m_of = new_m[k - first], &v_of = new_v[k - first];
#pragma unroll
      for (int j = 0; j < n; ++j) {
        m_of.at[j] = old_m_scale[k] * tables.m.levels[m_codes[k].at[j]];
        v_of.at[j] = old_v_scale[k] * tables.v.levels[v_codes[k].at[j]];
        w[k].at[j] = element(w[k].at[j], g[k].at[j], m_of.at[j], v_of.at[j]);
        m_largest = fmaxf(m_largest, fabsf(m_of.at[j]));
        v_largest = fmaxf(v_largest, v_of.at[j]);
      }
      weights.store(begin + place(k), w[k], *step);
    }
    const NewScale new_m_scale(warp_max<kLanes>(m_largest));
    const NewScale new_v_scale(warp_max<kLanes>(v_largest));
#pragma unroll
    for (int k = first; k < first + kShared; ++k) {
      if (place(k) >= size) continue;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        m_codes[k].at[j] = signed_code(tables.m, new_m[k - first].at[j], new_m_scale.inverse);
        v_codes[k].at[j] = unsigned_code(tables.v, new_v[k - first].at[j], new_v_scale.inverse);
      }
      store_pack(m.data + begin + place(k), m_codes[k]);
      store_pack(v.data + begin + place(k), v_codes[k]);
    }
    if (lane % kLanes != 0 || !has_scale(first)) continue;
    m_scale[scale_at(first)] = new_m_scale.scale;
    v_scale[scale_at(first)] = new_v_scale.scale;
  }
}

template <typename Grad, typename Param>
__global__ void __launch_bounds__(kThreads)
    adamw_8bit_kernel(Step8<Grad, Param> step8, bool packed) {
  const int64_t parts = ceil_div(step8.count, kOfWarp);
  const int64_t first = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  step8.prefetch(first * kOfWarp);
  await_previous_grid();
  if (step8.step->non_finite != 0) return;
  auto& tables = shared<MomentTables>();
  tables.m.fill(kSigned);
  tables.v.fill(kUnsigned);
  __syncthreads();
  for (int64_t part = first; part < parts; part += int64_t{gridDim.x} * kWarps) {
    const int64_t begin = part * kOfWarp, left = step8.count - begin;
    if (packed && left >= kOfWarp) {
      step8.template run<4>(tables, begin, kOfWarp);
    } else {
      step8.template run<1>(tables, begin, static_cast<int>(left < kOfWarp ? left : kOfWarp));
    }
  }
}

}  // namespace

template <>
void run(const Exec& exec, const AdamW8bitArgs& a) {
  step_of("adamw_8bit", exec);
  const int64_t parts = ceil_div(a.master.numel(), kOfWarp);
  if (parts == 0) return;
  constexpr int64_t kOfMultiprocessor = 2;  // thread blocks; limited by registers
  const int64_t grid =
      std::min(ceil_div(parts, kWarps), multiprocessors(exec) * kOfMultiprocessor);
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    dispatch_param(a.param, [&]<typename Param>() {
      const Step8<Grad, Param> step8(exec, a);
      simt::launch(adamw_8bit_kernel<Grad, Param>, {.grid = grid, .block = kThreads}, exec, step8,
                   step8.packed());
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
