#include "shale/kernels/reduce.h"

#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/cuda/reduce/column_tile.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// The reductions read every input once. column_sum also writes and reads partial sums, at most 1/64
// of the input. No result depends on the order in which blocks run.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

// ---- column_sum: a block owns a range of rows, and a pack of columns per lane ----

constexpr int kLines = kTileLines;
static_assert(kThreads == kTileThreads);

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    column_sum_kernel(const T* x, float* partial, int64_t rows, int64_t cols, int64_t stride,
                      int64_t rows_of_block) {
  await_previous_grid();
  const int lane = threadIdx.x % kWarpSize, line = threadIdx.x / kWarpSize;
  const int64_t first = int64_t{blockIdx.x} * kTileColumns<kCount>, c = first + lane * kCount;
  const int64_t begin = blockIdx.y * rows_of_block;
  const int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  Floats<kCount> sum{};
  if (c < cols) {
#pragma unroll 4
    for (int64_t r = begin + line; r < end; r += kLines) {
      const Floats<kCount> values = load_floats<kCount>(x + r * stride + c);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.at[i] += values.at[i];
    }
  }
  store_column_sums(sum, first, cols, partial + blockIdx.y * cols);
}

struct CombineTile {
  float at[kLines][kWarpSize];
};

// Line l of a block adds the partial sums l, l + kLines, ... of its lane's column; then line 0 adds
// the lines' sums.
__global__ void __launch_bounds__(kThreads) combine_kernel(CombineArgs a) {
  await_previous_grid();
  const int lane = threadIdx.x % kWarpSize, line = threadIdx.x / kWarpSize;
  const int64_t c = int64_t{blockIdx.x} * kWarpSize + lane;
  const ColumnSumTarget target = blockIdx.y == 0 ? a.targets[0] : a.targets[1];
  float sum = 0;
  if (c < a.cols && target.out != nullptr) {
    const float* from = a.partial + blockIdx.y * a.cols + c;
#pragma unroll 4
    for (int64_t b = line; b < a.blocks; b += kLines) sum += from[b * a.vectors * a.cols];
  }
  auto& tile = shared<CombineTile>();
  tile.at[line][lane] = sum;
  __syncthreads();
  if (line != 0 || c >= a.cols || target.out == nullptr) return;
  for (int k = 1; k < kLines; ++k) sum += tile.at[k][lane];
  store_column_sum(target, c, sum);
}

template <typename T, int kCount>
void column_sum_packs(const Exec& exec, const ColumnSumArgs& a) {
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  const int64_t rows_of_block = rows_of_tile(rows);
  const int64_t blocks = ceil_div(rows, rows_of_block);
  float* partial = scratch<float>("column_sum", exec, blocks * cols);
  if (blocks > 0) {
    simt::launch(column_sum_kernel<T, kCount>,
                 {.grid = {ceil_div(cols, kTileColumns<kCount>), blocks}, .block = kThreads}, exec,
                 a.x.as<T>(), partial, rows, cols, a.x.stride(0), rows_of_block);
  }
  combine_blocks(exec, {.partial = partial,
                        .blocks = blocks,
                        .cols = cols,
                        .targets = {column_sum_target(a.y, a.accumulate), {}}});
}

// ---- sum: the binary tree over the elements, kLeaves of them per block ----

constexpr int kLeavesOfThread = 4;
// Leaves per block; a power of two, so they form a subtree.
constexpr int kLeaves = kThreads * kLeavesOfThread;

struct TreeSlots {
  double of_warp[kThreads / kWarpSize];
};

// Adds neighbours, then neighbouring pairs, and so on. Missing elements count as -0, which changes
// no sum.
template <typename T>
__global__ void __launch_bounds__(kThreads) sum_kernel(const T* x, int64_t n, double* subtrees) {
  await_previous_grid();
  const int64_t first = int64_t{blockIdx.x} * kLeaves + threadIdx.x * kLeavesOfThread;
  double leaves[kLeavesOfThread];
#pragma unroll
  for (int k = 0; k < kLeavesOfThread; ++k) {
    leaves[k] = first + k < n ? static_cast<double>(x[first + k]) : -0.0;
  }
  double sum = (leaves[0] + leaves[1]) + (leaves[2] + leaves[3]);
#pragma unroll
  for (int bits = 1; bits < kWarpSize; bits *= 2) sum += shfl_xor(sum, bits);
  auto& slots = shared<TreeSlots>();
  if (threadIdx.x % kWarpSize == 0) slots.of_warp[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const double* w = slots.of_warp;
  subtrees[blockIdx.x] = ((w[0] + w[1]) + (w[2] + w[3])) + ((w[4] + w[5]) + (w[6] + w[7]));
}

__global__ void scale_kernel(const double* sum, double scale, float* y) {
  await_previous_grid();
  *y = static_cast<float>(sum == nullptr ? 0. : scale * *sum);
}

// ---- sum_squares ----

// Two threads share a block of kNormBlock elements: of each eight elements, the first thread adds
// those in lanes 0 to 3, the second those in lanes 4 to 7. Missing elements of a short last block
// would count as zeros, which change no sum.
constexpr int kSumLanes = 8;
constexpr int kHalf = kSumLanes / 2;

template <typename T>
__device__ __forceinline__ double sum_of_half(const T* block, int count, int half, bool packed) {
  double lanes[kHalf] = {};
  int i = half * kHalf;
  if (packed) {
#pragma unroll 8
    for (; i + kHalf <= count; i += kSumLanes) {
      const Floats<kHalf> x = load_floats<kHalf>(block + i);
      // The squares are exact in f64, so fused and separate multiplications give the same bits.
#pragma unroll
      for (int k = 0; k < kHalf; ++k) lanes[k] = fma(double{x.at[k]}, double{x.at[k]}, lanes[k]);
    }
  }
  for (; i < count; i += kSumLanes) {
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
      const double x = i + k < count ? double{to_float(block[i + k])} : 0.;
      lanes[k] = fma(x, x, lanes[k]);
    }
  }
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Adds 128-bit integers: the sum is the same in any order, and the thread that causes a carry adds
// it.
__device__ __forceinline__ void atomic_add(FixedSum* sum, const FixedSum& value) {
  const uint64_t low = simt::atomic_add(&sum->low, value.low);
  const uint64_t carry = low + value.low < low ? 1 : 0;
  const uint64_t addend = value.high + carry;
  const uint64_t high = simt::atomic_add(&sum->high, addend);
  const bool wrapped = addend < carry || high + addend < high;
  const uint64_t bad = value.bad + (wrapped ? 1 : 0);
  if (bad != 0) simt::atomic_add(&sum->bad, bad);
}

struct FixedSumSlots {
  FixedSum of_warp[kThreads / kWarpSize];
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(const T* x, int64_t n, FixedSum* sum, bool packed) {
  await_previous_grid();
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 2 * kNormBlock;
  const int64_t left = n - begin;
  const int count = left > kNormBlock ? kNormBlock : left > 0 ? static_cast<int>(left) : 0;
  double half = 0;
  if (count > 0) half = sum_of_half(x + begin, count, threadIdx.x % 2, packed);
  const double other = shfl_xor(half, 1);
  FixedSum mine;
  if (threadIdx.x % 2 == 0) mine.add(half + other);
#pragma unroll
  for (int bits = 2; bits < kWarpSize; bits *= 2) {
    FixedSum theirs;
    theirs.low = shfl_xor(mine.low, bits);
    theirs.high = shfl_xor(mine.high, bits);
    theirs.bad = shfl_xor(mine.bad, bits);
    mine.add(theirs);
  }
  auto& slots = shared<FixedSumSlots>();
  if (threadIdx.x % kWarpSize == 0) slots.of_warp[threadIdx.x / kWarpSize] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / kWarpSize; ++i) mine.add(slots.of_warp[i]);
  atomic_add(sum, mine);
}

// ---- clip_factor ----

__global__ void clip_factor_kernel(const FixedSum* sum, int64_t parts, float max_norm, float factor,
                                   StepState* step) {
  await_previous_grid();
  const double unscale = 1.0 / double{step->loss_scale.value};
  FixedSum total;
  for (int64_t part = 0; part < parts; ++part) total.add(sum[part]);
  const double norm = double{factor} * sqrt(total.value()) * unscale;
  const bool finite = norm < std::numeric_limits<double>::infinity();  // also false if norm is NaN
  const double wanted = double{max_norm} / (norm + 1e-6);
  const double clip = max_norm > 0 && wanted < 1.0 ? wanted : 1.0;
  step->grad_norm = static_cast<float>(norm);
  step->non_finite = finite ? 0 : 1;
  step->clip_factor = finite ? static_cast<float>(clip * unscale) : 0.f;
}

}  // namespace

void combine_blocks(const Exec& exec, const CombineArgs& a) {
  if (a.cols == 0) return;
  simt::launch(combine_kernel,
               {.grid = {ceil_div(a.cols, kWarpSize), a.vectors}, .block = kThreads}, exec, a);
}

template <>
void run(const Exec& exec, const ColumnSumArgs& a) {
  if (a.x.size(1) == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() {
    constexpr int kCount = kPackSize<T>;
    const bool packed = a.x.size(1) % kCount == 0 && a.x.stride(0) % kCount == 0 &&
                        reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0;
    packed ? column_sum_packs<T, kCount>(exec, a) : column_sum_packs<T, 1>(exec, a);
  });
}

template <>
void run(const Exec& exec, const SumArgs& a) {
  int64_t total = 0;  // number of subtrees on all levels
  for (int64_t n = a.x.numel(); n > 1 || (n == 1 && total == 0);) {
    n = ceil_div(n, kLeaves);
    total += n;
  }
  double* subtrees = scratch<double>("sum", exec, total);
  double* root = nullptr;
  if (total > 0) {
    int64_t n = ceil_div(a.x.numel(), kLeaves);
    simt::launch(sum_kernel<float>, {.grid = n, .block = kThreads}, exec, a.x.as<float>(),
                 a.x.numel(), subtrees);
    for (root = subtrees; n > 1;) {
      double* next = root + n;
      const int64_t parents = ceil_div(n, kLeaves);
      simt::launch(sum_kernel<double>, {.grid = parents, .block = kThreads}, exec, root, n, next);
      root = next, n = parents;
    }
  }
  simt::launch(scale_kernel, {.grid = 1, .block = 1}, exec, root, a.scale, a.y.as<float>());
}

template <>
void run(const Exec& exec, const SumSquaresArgs& a) {
  const int64_t n = a.x.numel();
  if (n == 0) return;
  const auto launch = [&]<typename T>() {
    const bool packed = reinterpret_cast<uintptr_t>(a.x.data) % (kHalf * sizeof(T)) == 0;
    simt::launch(sum_squares_kernel<T>,
                 {.grid = ceil_div(2 * ceil_div(n, kNormBlock), kThreads), .block = kThreads}, exec,
                 a.x.as<T>(), n, a.sum, packed);
  };
  if (a.x.dtype == DType::kBF16) {
    launch.template operator()<bf16>();
  } else {
    launch.template operator()<float>();
  }
}

template <>
void run(const Exec& exec, const ClipFactorArgs& a) {
  step_of("clip_factor", exec);
  simt::launch(clip_factor_kernel, {.grid = 1, .block = 1}, exec, a.sum, a.parts, a.max_norm,
               a.factor, exec.step);
}

}  // namespace shale::kernels::SHALE_BACKEND
