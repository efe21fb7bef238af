#include <algorithm>
#include <bit>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/optim/optim_parts.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/dynamic_lookup.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/simt/simt.h"

// A warp owns a block of kMomentBlock elements, eight to a lane: its new moments stay in registers
// until the warp knows their scale, so that memory is read and written once, 18 bytes an element
// with a 16-bit parameter. Codes are decoded and found by tables in shared memory, which is why
// thread blocks stay for many blocks of moments. The bits are the CPU's.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kOfLane = kMomentBlock / kWarpSize;  // elements

// Device memory's copy of what the shared tables are filled from.
struct MomentMap {
  DynamicMap map;
  DynamicLookup lookup;
};
__device__ constexpr MomentMap kSigned{kSignedMap, kSignedLookup};
__device__ constexpr MomentMap kUnsigned{kUnsignedMap, kUnsignedLookup};

// The tables of one kind of moments.
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

  // Levels from zero of a magnitude in [0, 1].
  __device__ __forceinline__ int nearest_level(float magnitude) const {
    // A NaN must not lead out of the table; it is in the parameter already.
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
  // There is no -1.
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

  // By a warp, for a block of moments.
  __device__ __forceinline__ void prefetch(int64_t block) const {
    const int lane = threadIdx.x % kWarpSize;
    const int64_t begin = block * kMomentBlock, last = begin + kMomentBlock;
    const int64_t end = last < count ? last : count;
    weights.prefetch(begin, end, lane);
    prefetch_run(grad.data, begin, end, lane);
    prefetch_run(m.data, begin, end, lane);
    prefetch_run(v.data, begin, end, lane);
  }
  // n elements are moved together; of `size` elements of this block of moments.
  template <int n>
  __device__ __forceinline__ void run(const MomentTables& tables, int64_t block, int size) const;
};

template <typename Grad, typename Param>
template <int n>
__device__ __forceinline__ void Step8<Grad, Param>::run(const MomentTables& tables, int64_t block,
                                                        int size) const {
  constexpr int kPacks = kOfLane / n;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t begin = block * kMomentBlock;
  const auto place = [&](int k) { return (k * kWarpSize + lane) * n; };
  struct Codes {
    Pack<uint8_t, n> m, v;
  };
  Floats<n> w[kPacks], g[kPacks], new_m[kPacks], new_v[kPacks];
  Codes codes[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (place(k) >= size) continue;
    const int64_t i = begin + place(k);
    w[k] = weights.template load<n>(i);
    g[k] = grad.template load<n>(i);
    codes[k] = {load_pack<n>(m.data + i), load_pack<n>(v.data + i)};
  }
  const AdamWStep element(numbers, *step);
  const float old_m_scale = m_scale[block], old_v_scale = v_scale[block];
  float m_largest = 0, v_largest = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (place(k) >= size) continue;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      new_m[k].at[j] = old_m_scale * tables.m.levels[codes[k].m.at[j]];
      new_v[k].at[j] = old_v_scale * tables.v.levels[codes[k].v.at[j]];
      w[k].at[j] = element(w[k].at[j], g[k].at[j], new_m[k].at[j], new_v[k].at[j]);
      m_largest = fmaxf(m_largest, fabsf(new_m[k].at[j]));
      v_largest = fmaxf(v_largest, new_v[k].at[j]);
    }
    weights.store(begin + place(k), w[k], *step);
  }
  m_largest = warp_max(m_largest), v_largest = warp_max(v_largest);
  const float new_m_scale = m_largest >= kSmallestScale ? m_largest : 0.f;
  const float new_v_scale = v_largest >= kSmallestScale ? v_largest : 0.f;
  const float m_inverse = new_m_scale > 0 ? 1.f / new_m_scale : 0.f;
  const float v_inverse = new_v_scale > 0 ? 1.f / new_v_scale : 0.f;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (place(k) >= size) continue;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      codes[k].m.at[j] = signed_code(tables.m, new_m[k].at[j], m_inverse);
      codes[k].v.at[j] = unsigned_code(tables.v, new_v[k].at[j], v_inverse);
    }
    store_pack(m.data + begin + place(k), codes[k].m);
    store_pack(v.data + begin + place(k), codes[k].v);
  }
  __syncwarp();  // all lanes have read the old scales
  if (lane == 0) m_scale[block] = new_m_scale, v_scale[block] = new_v_scale;
}

template <typename Grad, typename Param>
__global__ void __launch_bounds__(kThreads)
    adamw_8bit_kernel(Step8<Grad, Param> step8, bool packed) {
  const int64_t blocks = ceil_div(step8.count, kMomentBlock);
  const int64_t first = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  step8.prefetch(first);
  await_previous_grid();
  if (step8.step->non_finite != 0) return;
  auto& tables = shared<MomentTables>();
  tables.m.fill(kSigned);
  tables.v.fill(kUnsigned);
  __syncthreads();
  for (int64_t block = first; block < blocks; block += int64_t{gridDim.x} * kWarps) {
    const int64_t left = step8.count - block * kMomentBlock;
    if (packed && left >= kMomentBlock) {
      step8.template run<4>(tables, block, kMomentBlock);
    } else {
      step8.template run<1>(tables, block,
                            static_cast<int>(left < kMomentBlock ? left : kMomentBlock));
    }
  }
}

}  // namespace

template <>
void run(const Exec& exec, const AdamW8bitArgs& a) {
  step_of("adamw_8bit", exec);
  const int64_t blocks = ceil_div(a.master.numel(), kMomentBlock);
  if (blocks == 0) return;
  constexpr int64_t kOfMultiprocessor = 2;  // thread blocks: registers allow no more
  const int64_t grid =
      std::min(ceil_div(blocks, kWarps), multiprocessors(exec) * kOfMultiprocessor);
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    dispatch_param(a.param, [&]<typename Param>() {
      const Step8<Grad, Param> step8(exec, a);
      simt::launch(adamw_8bit_kernel<Grad, Param>, {.grid = grid, .block = kThreads}, exec, step8,
                   step8.packed());
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
