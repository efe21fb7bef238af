#include "shale/kernels/adafactor.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/map.cuh"
#include "shale/kernels/cuda/optim/optim_parts.cuh"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/cuda/reduce/column_tile.cuh"
#include "shale/kernels/cuda/run.h"

// Adafactor is memory-bound: it reads the gradient once for the means, once for the squares and
// once for the step, in tiles of rows by columns, so that the factors of a thread's columns stay in
// registers. Sums are computed per tile, then over the tiles in a fixed order.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = kTileThreads;
constexpr int kWideThreads = 1024;  // threads of kernels with a single block

// Division of a part of a matrix into tiles. The part's first and last row may be incomplete.
struct Tiles {
  int64_t cols, first, count;
  int64_t first_row, rows;  // matrix rows that the part overlaps
  int64_t rows_of_block;

  Tiles(const MatrixRange& part, int64_t elements)
      : cols(part.cols),
        first(part.first),
        count(elements),
        first_row(part.first / part.cols),
        rows((part.first + elements - 1) / part.cols - first_row + 1),
        rows_of_block(rows_of_tile(rows)) {}

  int64_t blocks() const { return ceil_div(rows, rows_of_block); }
  int64_t across(int pack) const { return ceil_div(cols, int64_t{kWarpSize} * pack); }
  bool packed(int pack) const { return cols % pack == 0 && first % pack == 0 && count % pack == 0; }
};

// Returns the first column of this thread's packs.
template <int kCount>
__device__ __forceinline__ int64_t own_column() {
  return int64_t{blockIdx.x} * kTileColumns<kCount> + threadIdx.x % kWarpSize * kCount;
}

// Calls fn(row of the part, element of the part, whether it is inside) for each of this thread's
// packs. The lanes of a warp make the same number of calls.
template <int kCount, class Fn>
__device__ __forceinline__ void for_rows(const Tiles& tiles, const Fn& fn) {
  const int64_t column = own_column<kCount>();
  const int64_t begin = blockIdx.y * tiles.rows_of_block;
  const int64_t last = begin + tiles.rows_of_block;
  const int64_t end = last < tiles.rows ? last : tiles.rows;
  for (int64_t row = begin + threadIdx.x / kWarpSize; row < end; row += kTileLines) {
    const int64_t element = (tiles.first_row + row) * tiles.cols + column - tiles.first;
    fn(row, element, column < tiles.cols && element >= 0 && element < tiles.count);
  }
}

// Prefetches this thread's first pack of an array that is as long as the part.
template <int kCount, typename T>
__device__ __forceinline__ void prefetch_first(const Tiles& tiles, const T* data) {
  const int64_t row = blockIdx.y * tiles.rows_of_block + threadIdx.x / kWarpSize;
  const int64_t column = own_column<kCount>();
  const int64_t element = (tiles.first_row + row) * tiles.cols + column - tiles.first;
  const bool inside = row < tiles.rows && column < tiles.cols;
  if (inside && element >= 0 && element < tiles.count) prefetch_l2(data + element);
}

// ---- Means ----

struct MeansArgs {
  const StepState* step;
  float eps, inverse_rows, inverse_cols;
  float* by_row;  // [tiles across, rows of the part]: partial row means
  float* by_col;  // [blocks, cols of the matrix]: partial column means
};

template <typename Grad, int kCount>
__global__ void __launch_bounds__(kThreads)
    adafactor_means_kernel(const Grad* grad, Tiles tiles, MeansArgs a) {
  await_previous_grid();
  const float clip = a.step->clip_factor;
  const bool counts = a.step->non_finite == 0;  // false: the sums stay zero
  Floats<kCount> of_column{};
  for_rows<kCount>(tiles, [&](int64_t row, int64_t element, bool inside) {
    float of_row = 0;
    if (inside && counts) {
      const Floats<kCount> values = load_floats<kCount>(grad + element);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float g = clip * values.at[i], square = fmaf(g, g, a.eps);
        of_column.at[i] += square;
        of_row += square;
      }
    }
    of_row = warp_sum(of_row);
    if (threadIdx.x % kWarpSize == 0) {
      a.by_row[blockIdx.x * tiles.rows + row] = of_row * a.inverse_cols;
    }
  });
#pragma unroll
  for (int i = 0; i < kCount; ++i) of_column.at[i] *= a.inverse_rows;
  store_column_sums(of_column, int64_t{blockIdx.x} * kTileColumns<kCount>, tiles.cols,
                    a.by_col + blockIdx.y * tiles.cols);
}

template <typename Grad, int kCount>
void means(const Exec& exec, const AdafactorMeansArgs& a, const Tiles& tiles) {
  const int64_t across = tiles.across(kCount), blocks = tiles.blocks();
  float* by_row =
      scratch<float>("adafactor_means", exec, across * tiles.rows + blocks * tiles.cols);
  float* by_col = by_row + across * tiles.rows;
  simt::launch(adafactor_means_kernel<Grad, kCount>, {.grid = {across, blocks}, .block = kThreads},
               exec, a.grad.as<Grad>(), tiles,
               MeansArgs{.step = exec.step,
                         .eps = a.eps,
                         .inverse_rows = 1.f / static_cast<float>(a.part.rows),
                         .inverse_cols = 1.f / static_cast<float>(a.part.cols),
                         .by_row = by_row,
                         .by_col = by_col});
  combine_blocks(
      exec,
      {.partial = by_row,
       .blocks = across,
       .cols = tiles.rows,
       .targets = {{.out = a.row_mean.as<float>() + tiles.first_row, .accumulate = true}, {}}});
  combine_blocks(exec, {.partial = by_col,
                        .blocks = blocks,
                        .cols = tiles.cols,
                        .targets = {column_sum_target(a.col_mean, true), {}}});
}

struct Average {
  static constexpr int kCount = 4;
  Typed<float> newest, mean;
  const StepState* step;

  bool packed() const { return allows_packs(newest, kCount) && allows_packs(mean, kCount); }
  template <int n>
  struct Inputs {
    Floats<n> newest, mean;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {newest.load<n>(i), mean.load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (step->non_finite != 0) return;
    const float gamma = step->bias_correction2;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      x.mean.at[k] = fmaf(1.f - gamma, x.mean.at[k], gamma * x.newest.at[k]);
    }
    mean.store(i, x.mean);
  }
};

// ---- The update ----

// Computes the mean of the row means r over all rows.
__global__ void __launch_bounds__(kWideThreads)
    mean_row_kernel(const float* row, int64_t rows, float* mean) {
  await_previous_grid();
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < rows; i += kWideThreads) sum += double{row[i]};
  sum = block_sum(sum);
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(rows));
}

// The factors of the update: u_ij = g_ij * of_row(i) * of_column(j).
struct Factors {
  const StepState* step;
  const float *row, *col;
  const float* mean_row;

  Factors(const Exec& exec, const View& row_view, const View& col_view, float* memory)
      : step(exec.step), row(row_view.as<float>()), col(col_view.as<float>()), mean_row(memory) {
    simt::launch(mean_row_kernel, {.grid = 1, .block = kWideThreads}, exec, row, row_view.numel(),
                 memory);
  }
  __device__ __forceinline__ float of_row(int64_t i) const {
    return step->clip_factor * sqrtf(*mean_row / row[i]);
  }
  template <int kCount>
  __device__ __forceinline__ Floats<kCount> of_columns(int64_t cols) const {
    const int64_t column = own_column<kCount>();
    Floats<kCount> factors{};
    if (column < cols) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) factors.at[i] = 1.f / sqrtf(col[column + i]);
    }
    return factors;
  }
};

// ---- Squares of the update ----

template <typename Grad, int kCount>
__global__ void __launch_bounds__(kThreads)
    matrix_squares_kernel(const Grad* grad, Tiles tiles, Factors factors, double* partial) {
  await_previous_grid();
  const Floats<kCount> of_column = factors.of_columns<kCount>(tiles.cols);
  float sum = 0;
  for_rows<kCount>(tiles, [&](int64_t row, int64_t element, bool inside) {
    if (!inside) return;
    const float of_row = factors.of_row(tiles.first_row + row);
    const Floats<kCount> g = load_floats<kCount>(grad + element);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float u = of_row * g.at[i] * of_column.at[i];
      sum = fmaf(u, u, sum);
    }
  });
  const double total = block_sum(double{sum});
  if (threadIdx.x == 0) partial[int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = total;
}

constexpr int kPacksOfThread = 4;

// Adds up the squares of the update of a non-matrix, and updates v in the same pass.
template <typename Grad, int kCount>
__global__ void __launch_bounds__(kThreads)
    vector_squares_kernel(const Grad* grad, float* v, int64_t count, const StepState* step,
                          float eps, double* partial) {
  await_previous_grid();
  if (step->non_finite != 0) return;
  const float clip = step->clip_factor, gamma = step->bias_correction2;
  const int64_t begin = int64_t{blockIdx.x} * kThreads * kPacksOfThread;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kPacksOfThread; ++k) {
    const int64_t at = (begin + k * kThreads + threadIdx.x) * kCount;
    if (at >= count) continue;
    const Floats<kCount> values = load_floats<kCount>(grad + at);
    Floats<kCount> second = load_floats<kCount>(v + at);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float g = clip * values.at[i];
      second.at[i] = fmaf(1.f - gamma, second.at[i], gamma * fmaf(g, g, eps));
      const float u = g / sqrtf(second.at[i]);
      sum = fmaf(u, u, sum);
    }
    store_floats(v + at, second);
  }
  const double total = block_sum(double{sum});
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kWideThreads)
    add_partial_kernel(const double* partial, int64_t count, const StepState* step, float* sum) {
  await_previous_grid();
  if (step->non_finite != 0) return;
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kWideThreads) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *sum += static_cast<float>(total);
}

template <typename Grad, int kCount>
void squares(const Exec& exec, const AdafactorSquaresArgs& a) {
  const int64_t count = a.grad.numel();
  const Grad* grad = a.grad.as<Grad>();
  double* partial = nullptr;
  int64_t blocks = 0;
  if (a.v.defined()) {
    blocks = ceil_div(count, int64_t{kThreads} * kPacksOfThread * kCount);
    partial = scratch<double>("adafactor_squares", exec, blocks);
    simt::launch(vector_squares_kernel<Grad, kCount>, {.grid = blocks, .block = kThreads}, exec,
                 grad, a.v.as<float>(), count, exec.step, a.eps, partial);
  } else {
    const Tiles tiles(a.part, count);
    const int64_t across = tiles.across(kCount);
    blocks = across * tiles.blocks();
    partial = scratch<double>("adafactor_squares", exec, blocks + 1);
    const Factors factors(exec, a.row, a.col, reinterpret_cast<float*>(partial + blocks));
    simt::launch(matrix_squares_kernel<Grad, kCount>,
                 {.grid = {across, tiles.blocks()}, .block = kThreads}, exec, grad, tiles, factors,
                 partial);
  }
  simt::launch(add_partial_kernel, {.grid = 1, .block = kWideThreads}, exec, partial, blocks,
               exec.step, a.sum.as<float>());
}

// ---- The step ----

struct StepNumbers {
  const StepState* step;
  const float* square_sum;
  float numel, clip_rms, lr_factor, weight_decay;

  StepNumbers(const Exec& exec, const AdafactorArgs& a)
      : step(exec.step),
        square_sum(a.square_sum.as<float>()),
        numel(static_cast<float>(a.part.rows * a.part.cols)),
        clip_rms(a.clip_rms),
        lr_factor(a.lr_factor),
        weight_decay(a.weight_decay) {}

  __device__ __forceinline__ float over_rms() const {
    return 1.f / fmaxf(1.f, sqrtf(*square_sum / numel) / clip_rms);
  }
  __device__ __forceinline__ float stepped(float w, float u, float over) const {
    const float lr = step->lr * lr_factor;
    return fmaf(-lr, fmaf(weight_decay, w, u * over), w);
  }
};

template <typename Grad, typename Param, int kCount>
__global__ void __launch_bounds__(kThreads)
    matrix_step_kernel(Weights<Param> weights, const Grad* grad, Tiles tiles, Factors factors,
                       StepNumbers numbers) {
  prefetch_first<kCount>(tiles, weights.master);
  prefetch_first<kCount>(tiles, grad);
  await_previous_grid();
  if (numbers.step->non_finite != 0) return;
  const Floats<kCount> of_column = factors.of_columns<kCount>(tiles.cols);
  const float over = numbers.over_rms();
  for_rows<kCount>(tiles, [&](int64_t row, int64_t element, bool inside) {
    if (!inside) return;
    const float of_row = factors.of_row(tiles.first_row + row);
    const Floats<kCount> g = load_floats<kCount>(grad + element);
    Floats<kCount> w = weights.template load<kCount>(element);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      w.at[i] = numbers.stepped(w.at[i], of_row * g.at[i] * of_column.at[i], over);
    }
    weights.store(element, w, *numbers.step);
  });
}

template <typename Grad, typename Param>
struct VectorStep {
  static constexpr int kCount = 4;
  Weights<Param> weights;
  Typed<Grad> grad;
  Typed<float> v;
  StepNumbers numbers;

  bool packed() const {
    return weights.packed(kCount) && allows_packs(grad, kCount) && allows_packs(v, kCount);
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    weights.prefetch(begin, end, thread);
    prefetch_run(grad.data, begin, end, thread);
    prefetch_run(v.data, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> w, grad, v;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {weights.template load<n>(i), grad.template load<n>(i), v.load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (numbers.step->non_finite != 0) return;
    const float clip = numbers.step->clip_factor, over = numbers.over_rms();
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float u = clip * x.grad.at[k] / sqrtf(x.v.at[k]);
      x.w.at[k] = numbers.stepped(x.w.at[k], u, over);
    }
    weights.store(i, x.w, *numbers.step);
  }
};

template <typename Grad, typename Param, int kCount>
void matrix_step(const Exec& exec, const AdafactorArgs& a, const Tiles& tiles) {
  const Factors factors(exec, a.row, a.col, scratch<float>("adafactor", exec, 1));
  simt::launch(matrix_step_kernel<Grad, Param, kCount>,
               {.grid = {tiles.across(kCount), tiles.blocks()}, .block = kThreads}, exec,
               Weights<Param>(a.master, a.param), a.grad.as<Grad>(), tiles, factors,
               StepNumbers(exec, a));
}

constexpr int kPack = 4;

bool aligned(const View& view) {
  return reinterpret_cast<uintptr_t>(view.data) %
             static_cast<uintptr_t>(kPack * dtype_size(view.dtype)) ==
         0;
}

}  // namespace

template <>
void run(const Exec& exec, const AdafactorMeansArgs& a) {
  step_of("adafactor_means", exec);
  if (a.grad.numel() == 0) return;
  const Tiles tiles(a.part, a.grad.numel());
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    tiles.packed(kPack) && aligned(a.grad) ? means<Grad, kPack>(exec, a, tiles)
                                           : means<Grad, 1>(exec, a, tiles);
  });
}

template <>
void run(const Exec& exec, const AdafactorAverageArgs& a) {
  step_of("adafactor_average", exec);
  map(exec, Average{Typed<float>(a.newest), Typed<float>(a.mean), exec.step}, a.mean.numel());
}

template <>
void run(const Exec& exec, const AdafactorSquaresArgs& a) {
  step_of("adafactor_squares", exec);
  const int64_t count = a.grad.numel();
  if (count == 0) return;
  const bool packed = aligned(a.grad) && (a.v.defined() ? count % kPack == 0 && aligned(a.v)
                                                        : Tiles(a.part, count).packed(kPack));
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    packed ? squares<Grad, kPack>(exec, a) : squares<Grad, 1>(exec, a);
  });
}

template <>
void run(const Exec& exec, const AdafactorArgs& a) {
  step_of("adafactor", exec);
  const int64_t count = a.grad.numel();
  if (count == 0) return;
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    dispatch_param(a.param, [&]<typename Param>() {
      const Weights<Param> weights(a.master, a.param);
      if (a.v.defined()) {
        const VectorStep<Grad, Param> step{weights, Typed<Grad>(a.grad), Typed<float>(a.v),
                                           StepNumbers(exec, a)};
        return map(exec, step, count);
      }
      const Tiles tiles(a.part, count);
      tiles.packed(kPack) && aligned(a.grad) && weights.packed(kPack)
          ? matrix_step<Grad, Param, kPack>(exec, a, tiles)
          : matrix_step<Grad, Param, 1>(exec, a, tiles);
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
