#include "shale/kernels/batch_norm.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/cuda/reduce/column_tile.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Kernels that sum over rows: a thread block owns a range of rows, and each lane owns a pack of
// columns (column_tile.cuh). Then a thread per channel adds the sums of the ranges in order, in
// f64. Elementwise kernels: a thread owns a pack of neighbouring channels of a row.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads == kTileThreads);

// Division of the rows into ranges, and the grid of the kernels that sum over rows.
struct RowRanges {
  explicit RowRanges(int64_t rows)
      : rows_of_block(rows_of_tile(rows)), count(ceil_div(rows, rows_of_block)) {}
  template <int kCount>
  auto grid(int64_t cols) const {
    return simt::LaunchConfig{.grid = {ceil_div(cols, kTileColumns<kCount>), count},
                              .block = kThreads};
  }
  int64_t rows_of_block, count;
};

int64_t blocks_of(int64_t threads) {
  return ceil_div(threads, int64_t{kThreads});
}

// Returns whether the channels are whole, aligned packs of T in all views.
template <typename T, typename... Views>
bool comes_in_packs(int64_t cols, const Views&... views) {
  return cols % kPackSize<T> == 0 && ((reinterpret_cast<uintptr_t>(views.data) % 16 == 0) && ...);
}

// ---- Moments of each line (warp) of a block; the lines are merged in order ----

struct Moment {
  float mean, squares;
};

// Merges two moments: a of `count` values and b of `more` values ("Updating formulae ...", see
// batch_norm.h).
__device__ __forceinline__ Moment merged(Moment a, float count, Moment b, float more) {
  const float share = more / (count + more), delta = b.mean - a.mean;
  return {a.mean + delta * share, a.squares + b.squares + delta * delta * (count * share)};
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(const T* x, float* partial, int64_t rows, int64_t cols, int64_t rows_of_block) {
  await_previous_grid();
  const int lane = threadIdx.x % kWarpSize, line = threadIdx.x / kWarpSize;
  const int64_t first = int64_t{blockIdx.x} * kTileColumns<kCount>, c = first + lane * kCount;
  const int64_t begin = blockIdx.y * rows_of_block;
  const int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  const auto rows_of_line = [&](int l) {
    return begin + l < end ? static_cast<float>((end - begin - l - 1) / kTileLines + 1) : 0.f;
  };
  // Deviations are taken from the first value, which is near the mean, so that squares do not
  // cancel.
  Floats<kCount> mean{}, squares{};
  if (c < cols && begin + line < end) {
    const Floats<kCount> pivot = load_floats<kCount>(x + (begin + line) * cols + c);
    for (int64_t r = begin + line + kTileLines; r < end; r += kTileLines) {
      const Floats<kCount> values = load_floats<kCount>(x + r * cols + c);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float deviation = values.at[i] - pivot.at[i];
        mean.at[i] += deviation;
        squares.at[i] = fmaf(deviation, deviation, squares.at[i]);
      }
    }
    const float share = 1 / rows_of_line(line);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float shift = mean.at[i] * share;
      squares.at[i] = fmaf(-mean.at[i], shift, squares.at[i]);
      mean.at[i] = pivot.at[i] + shift;
    }
  }
  struct Tiles {
    ColumnTile<kCount> mean, squares;
  };
  auto& tiles = shared<Tiles>();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    tiles.mean.at[line][i * kWarpSize + lane] = mean.at[i];
    tiles.squares.at[line][i * kWarpSize + lane] = squares.at[i];
  }
  __syncthreads();
  float* out = partial + blockIdx.y * 2 * cols;
  for (int at = threadIdx.x; at < kTileColumns<kCount>; at += kTileThreads) {
    const int64_t column = first + at % kWarpSize * kCount + at / kWarpSize;
    if (column >= cols) continue;
    Moment total = {tiles.mean.at[0][at], tiles.squares.at[0][at]};
    float count = rows_of_line(0);
    for (int l = 1; l < kTileLines; ++l) {
      const float more = rows_of_line(l);
      if (more == 0) break;
      total = merged(total, count, {tiles.mean.at[l][at], tiles.squares.at[l][at]}, more);
      count += more;
    }
    out[column] = total.mean;
    out[cols + column] = total.squares;
  }
}

// Moments of the ranges or sets of rows so far, merged in f64.
struct RunningMoment {
  double mean = 0, squares = 0, count = 0;
  __device__ __forceinline__ void add(float more_mean, float more_squares, double more) {
    const double delta = more_mean - mean, share = more / (count + more);
    mean += delta * share;
    squares += more_squares + delta * delta * count * share;
    count += more;
  }
};

__global__ void __launch_bounds__(kThreads)
    combine_moments_kernel(const float* partial, float* moments, int64_t rows, int64_t cols,
                           int64_t rows_of_block) {
  await_previous_grid();
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c == 0) moments[2 * cols] = static_cast<float>(rows);
  if (c >= cols) return;
  RunningMoment total;
  for (int64_t begin = 0; begin < rows; begin += rows_of_block) {
    const float* of = partial + begin / rows_of_block * 2 * cols;
    const int64_t left = rows - begin;
    total.add(of[c], of[cols + c],
              static_cast<double>(left < rows_of_block ? left : rows_of_block));
  }
  moments[c] = static_cast<float>(total.mean);
  moments[cols + c] = static_cast<float>(total.squares);
}

struct MergeOperands {
  const float* moments;
  float *mean, *rstd, *count, *running_mean, *running_variance;
  int64_t sets, channels;
  float eps, momentum;
};

__device__ __forceinline__ float moved(float running, double momentum, double to) {
  return static_cast<float>((1 - momentum) * running + momentum * to);
}

__global__ void __launch_bounds__(kThreads) merge_kernel(MergeOperands a) {
  await_previous_grid();
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= a.channels) return;
  const int64_t width = 2 * a.channels + 1;
  RunningMoment total;
  for (int64_t set = 0; set < a.sets; ++set) {
    const float* of = a.moments + set * width;
    if (of[2 * a.channels] > 0) {
      total.add(of[c], of[a.channels + c], static_cast<double>(of[2 * a.channels]));
    }
  }
  if (c == 0) *a.count = static_cast<float>(total.count);
  const double variance = total.count > 0 ? total.squares / total.count : 0;
  a.mean[c] = static_cast<float>(total.mean);
  a.rstd[c] = static_cast<float>(1 / sqrt(variance + static_cast<double>(a.eps)));
  if (a.running_mean == nullptr || total.count == 0) return;
  const double momentum = a.momentum;
  a.running_mean[c] = moved(a.running_mean[c], momentum, total.mean);
  if (total.count > 1) {
    a.running_variance[c] =
        moved(a.running_variance[c], momentum, total.squares / (total.count - 1));
  }
}

// ---- Forward ----

template <typename T>
struct NormOperands {
  const T *x, *residual;  // residual may be null
  const float *mean, *rstd;
  const T *gain, *bias;
  T* y;
  int64_t cols;
  bool relu;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) norm_kernel(NormOperands<T> a, int64_t packs) {
  await_previous_grid();
  const int64_t pack = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t at = pack * kCount, c = at % a.cols;
  Floats<kCount> values = load_floats<kCount>(a.x + at);
  const Floats<kCount> gain = load_floats<kCount>(a.gain + c),
                       bias = load_floats<kCount>(a.bias + c);
  Floats<kCount> residual{};
  if (a.residual != nullptr) residual = load_floats<kCount>(a.residual + at);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float factor = gain.at[i] * a.rstd[c + i];
    const float shift = fmaf(-a.mean[c + i], factor, bias.at[i]);
    float y = fmaf(values.at[i], factor, shift) + residual.at[i];
    if (a.relu && y < 0) y = 0;
    values.at[i] = y;
  }
  store_floats(a.y + at, values);
}

// ---- Backward ----

template <typename T>
struct GradOperands {
  const T *dy, *x, *y;  // y may be null
  const float *mean, *rstd;

  // Returns the gradient before relu, g of batch_norm.h.
  template <int kCount>
  __device__ __forceinline__ Floats<kCount> gradient(int64_t at) const {
    Floats<kCount> g = load_floats<kCount>(dy + at);
    if (y == nullptr) return g;
    const Floats<kCount> out = load_floats<kCount>(y + at);
#pragma unroll
    for (int i = 0; i < kCount; ++i) g.at[i] = out.at[i] == 0 ? 0 : g.at[i];
    return g;
  }
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(GradOperands<T> a, float* partial, int64_t rows, int64_t cols,
                int64_t rows_of_block) {
  await_previous_grid();
  const int lane = threadIdx.x % kWarpSize, line = threadIdx.x / kWarpSize;
  const int64_t first = int64_t{blockIdx.x} * kTileColumns<kCount>, c = first + lane * kCount;
  const int64_t begin = blockIdx.y * rows_of_block;
  const int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  Floats<kCount> sum_g{}, sum_gn{};
  if (c < cols) {
    for (int64_t r = begin + line; r < end; r += kTileLines) {
      const Floats<kCount> g = a.template gradient<kCount>(r * cols + c);
      const Floats<kCount> x = load_floats<kCount>(a.x + r * cols + c);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        sum_g.at[i] += g.at[i];
        sum_gn.at[i] = fmaf(g.at[i], (x.at[i] - a.mean[c + i]) * a.rstd[c + i], sum_gn.at[i]);
      }
    }
  }
  float* out = partial + blockIdx.y * 2 * cols;
  store_column_sums(sum_g, first, cols, out);
  __syncthreads();  // all threads have read the tile, which is reused
  store_column_sums(sum_gn, first, cols, out + cols);
}

struct SumTargets {
  float* sums;
  ColumnSumTarget dbias, dgain;
};

__global__ void __launch_bounds__(kThreads)
    combine_sums_kernel(const float* partial, SumTargets to, int64_t blocks, int64_t cols) {
  await_previous_grid();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= 2 * cols) return;
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += partial[block * 2 * cols + i];
  const float sum = static_cast<float>(total);
  to.sums[i] = sum;
  const bool is_bias = i < cols;
  if ((is_bias ? to.dbias.out : to.dgain.out) == nullptr) return;
  if (is_bias) {
    store_column_sum(to.dbias, i, sum);
  } else {
    store_column_sum(to.dgain, i - cols, sum);
  }
}

template <typename T>
struct GradTargets {
  const T* gain;
  const float *sums, *count;  // both may be null
  T *dx, *d_residual;         // d_residual may be null
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    batch_norm_grad_kernel(GradOperands<T> a, GradTargets<T> to, int64_t cols, int64_t packs) {
  await_previous_grid();
  const int64_t pack = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t at = pack * kCount, c = at % cols;
  const Floats<kCount> g = a.template gradient<kCount>(at);
  const Floats<kCount> x = load_floats<kCount>(a.x + at), gain = load_floats<kCount>(to.gain + c);
  const float inv_count = to.sums == nullptr ? 0 : 1 / *to.count;
  Floats<kCount> dx;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float rstd = a.rstd[c + i], factor = gain.at[i] * rstd;
    float rest = 0;
    if (to.sums != nullptr) {
      const float slope = factor * (rstd * (to.sums[cols + c + i] * inv_count));
      const float level = factor * (to.sums[c + i] * inv_count);
      rest = fmaf(x.at[i] - a.mean[c + i], slope, level);
    }
    dx.at[i] = fmaf(factor, g.at[i], -rest);
  }
  store_floats(to.dx + at, dx);
  if (to.d_residual != nullptr) store_floats(to.d_residual + at, g);
}

template <typename T>
GradOperands<T> grad_operands(const View& dy, const View& x, const View& y, const View& mean,
                              const View& rstd) {
  return {.dy = dy.as<T>(),
          .x = x.as<T>(),
          .y = y.defined() ? y.as<T>() : nullptr,
          .mean = mean.as<float>(),
          .rstd = rstd.as<float>()};
}

float* optional_floats(const View& view) {
  return view.defined() ? view.as<float>() : nullptr;
}

}  // namespace

template <>
void run(const Exec& exec, const BatchMomentsArgs& a) {
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  const RowRanges ranges(rows);
  float* partial = scratch<float>("batch_moments", exec, ranges.count * 2 * cols);
  if (rows > 0) {
    dispatch_float(a.x.dtype, [&]<typename T>() {
      const auto launch = [&](auto kernel, const simt::LaunchConfig& shape) {
        simt::launch(kernel, shape, exec, a.x.as<T>(), partial, rows, cols, ranges.rows_of_block);
      };
      constexpr int kCount = kPackSize<T>;
      if (comes_in_packs<T>(cols, a.x)) {
        return launch(moments_kernel<T, kCount>, ranges.grid<kCount>(cols));
      }
      launch(moments_kernel<T, 1>, ranges.grid<1>(cols));
    });
  }
  simt::launch(combine_moments_kernel, {.grid = blocks_of(cols), .block = kThreads}, exec,
               static_cast<const float*>(partial), a.moments.as<float>(), rows, cols,
               ranges.rows_of_block);
}

template <>
void run(const Exec& exec, const BatchMergeArgs& a) {
  const MergeOperands operands = {.moments = a.moments.as<float>(),
                                  .mean = a.mean.as<float>(),
                                  .rstd = a.rstd.as<float>(),
                                  .count = a.count.as<float>(),
                                  .running_mean = optional_floats(a.running_mean),
                                  .running_variance = optional_floats(a.running_variance),
                                  .sets = a.moments.size(0),
                                  .channels = a.mean.numel(),
                                  .eps = a.eps,
                                  .momentum = a.momentum};
  simt::launch(merge_kernel, {.grid = blocks_of(operands.channels), .block = kThreads}, exec,
               operands);
}

template <>
void run(const Exec& exec, const BatchNormArgs& a) {
  const int64_t cols = a.x.size(1);
  if (a.x.numel() == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() {
    const NormOperands<T> operands = {
        .x = a.x.as<T>(),
        .residual = a.residual.defined() ? a.residual.as<T>() : nullptr,
        .mean = a.mean.as<float>(),
        .rstd = a.rstd.as<float>(),
        .gain = a.gain.as<T>(),
        .bias = a.bias.as<T>(),
        .y = a.y.as<T>(),
        .cols = cols,
        .relu = a.relu};
    const auto launch = [&](auto kernel, int64_t packs) {
      simt::launch(kernel, {.grid = blocks_of(packs), .block = kThreads}, exec, operands, packs);
    };
    constexpr int kCount = kPackSize<T>;
    if (comes_in_packs<T>(cols, a.x, a.residual, a.gain, a.bias, a.y)) {
      return launch(norm_kernel<T, kCount>, a.x.numel() / kCount);
    }
    launch(norm_kernel<T, 1>, a.x.numel());
  });
}

template <>
void run(const Exec& exec, const BatchNormSumsArgs& a) {
  const int64_t rows = a.dy.size(0), cols = a.dy.size(1);
  const RowRanges ranges(rows);
  float* partial = scratch<float>("batch_norm_sums", exec, ranges.count * 2 * cols);
  if (rows > 0) {
    dispatch_float(a.dy.dtype, [&]<typename T>() {
      const auto launch = [&](auto kernel, const simt::LaunchConfig& shape) {
        simt::launch(kernel, shape, exec, grad_operands<T>(a.dy, a.x, a.y, a.mean, a.rstd), partial,
                     rows, cols, ranges.rows_of_block);
      };
      constexpr int kCount = kPackSize<T>;
      if (comes_in_packs<T>(cols, a.dy, a.x, a.y)) {
        return launch(sums_kernel<T, kCount>, ranges.grid<kCount>(cols));
      }
      launch(sums_kernel<T, 1>, ranges.grid<1>(cols));
    });
  }
  const SumTargets targets = {.sums = a.sums.as<float>(),
                              .dbias = column_sum_target(a.dbias, a.accumulate_dbias),
                              .dgain = column_sum_target(a.dgain, a.accumulate_dgain)};
  simt::launch(combine_sums_kernel, {.grid = blocks_of(2 * cols), .block = kThreads}, exec,
               static_cast<const float*>(partial), targets, ranges.count, cols);
}

template <>
void run(const Exec& exec, const BatchNormGradArgs& a) {
  const int64_t cols = a.dy.size(1);
  if (a.dy.numel() == 0) return;
  dispatch_float(a.dy.dtype, [&]<typename T>() {
    const GradTargets<T> targets = {
        .gain = a.gain.as<T>(),
        .sums = optional_floats(a.sums),
        .count = optional_floats(a.count),
        .dx = a.dx.as<T>(),
        .d_residual = a.d_residual.defined() ? a.d_residual.as<T>() : nullptr};
    const auto launch = [&](auto kernel, int64_t packs) {
      simt::launch(kernel, {.grid = blocks_of(packs), .block = kThreads}, exec,
                   grad_operands<T>(a.dy, a.x, a.y, a.mean, a.rstd), targets, cols, packs);
    };
    constexpr int kCount = kPackSize<T>;
    if (comes_in_packs<T>(cols, a.dy, a.x, a.y, a.gain, a.dx, a.d_residual)) {
      return launch(batch_norm_grad_kernel<T, kCount>, a.dy.numel() / kCount);
    }
    launch(batch_norm_grad_kernel<T, 1>, a.dy.numel());
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
