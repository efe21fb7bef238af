#include "shale/kernels/check.h"
#include "shale/kernels/cuda/norm/norm_rows.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/norm.h"

// Every large tensor is read or written once: x, residual, sum and y. Rows that are not aligned to
// packs, or too wide for shared memory, are read again for each pass, from the caches.

namespace shale::kernels::SHALE_BACKEND {
namespace {

template <typename T>
struct NormFwd {
  RowOperands<T, 2> in;  // x and residual
  T* sum;                // null: not written
  const T* gain;
  const T* bias;  // null: no bias
  T* y;
  float* mean;  // null for RMSNorm
  float* rstd;
  float eps;
};

// Adds the deviations of s from `mean`, and their squares, to sums.
template <int kCount>
__device__ __forceinline__ void add_deviations(const Floats<kCount>& s, float mean,
                                               float (&sums)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float deviation = s.at[i] - mean;
    sums[0] += deviation;
    sums[1] = fmaf(deviation, deviation, sums[1]);
  }
}

// Computes mean and rstd of a row from `sums`, the sums of its deviations and of their squares.
// LayerNorm's deviations are from an approximate mean; the sum of the deviations corrects its
// rounding error. RMSNorm's deviations are from 0. The comparison with 0 keeps a NaN.
template <bool kCentered>
__device__ __forceinline__ RowStats row_stats(float first_mean, const float (&sums)[2], int cols,
                                              float eps) {
  const float count = static_cast<float>(cols), mean_square = sums[1] / count;
  if constexpr (!kCentered) return {0.f, 1.f / sqrtf(mean_square + eps)};
  const float shift = sums[0] / count, variance = mean_square - shift * shift;
  return {first_mean + shift, 1.f / sqrtf((variance < 0.f ? 0.f : variance) + eps)};
}

template <int kCount>
__device__ __forceinline__ Floats<kCount> added(Floats<kCount> a, const Floats<kCount>& b) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) a.at[i] += b.at[i];
  return a;
}

template <int kCount>
__device__ __forceinline__ Floats<kCount> normed(Floats<kCount> s, const RowStats& stats,
                                                 const Floats<kCount>& gain,
                                                 const Floats<kCount>& bias) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s.at[i] = fmaf((s.at[i] - stats.mean) * stats.rstd, gain.at[i], bias.at[i]);
  }
  return s;
}

template <typename T>
__device__ __forceinline__ void write_stats(const NormFwd<T>& a, int64_t row,
                                            const RowStats& stats) {
  if (a.mean != nullptr) a.mean[row] = stats.mean;
  a.rstd[row] = stats.rstd;
}

// Kernel for rows that fit registers: s = x + residual, rounded, stays there between the passes.
template <typename T, int kPacks, bool kWarpPerRow, bool kCentered>
__global__ void __launch_bounds__(kWarpPerRow ? kWarpThreads : kMaxRowThreads)
    norm_fwd_kernel(NormFwd<T> a) {
  await_previous_grid();
  constexpr int kCount = kPackSize<T>;
  const RowThreads<kWarpPerRow> threads;
  const int cols = a.in.cols;
  Pack<T> gain[kPacks] = {}, bias[kPacks] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int c = threads.template column<T>(k);
    if (c >= cols) continue;
    gain[k] = load_pack(a.gain + c);
    if (a.bias != nullptr) bias[k] = load_pack(a.bias + c);
  }
  RowQueue<T, kPacks, kWarpPerRow, 2> queue(a.in, threads);
  int turn = 0;
  for (int64_t row = threads.first; row < a.in.rows; row += threads.stride) {
    queue.wait(row);
    Pack<T> s[kPacks] = {};
    float total[1] = {0.f};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int c = threads.template column<T>(k);
      if (c >= cols) continue;
      s[k] = queue.pack(0, k);
      if (a.in.at[1] != nullptr) {
        s[k] = from_floats<T>(added(to_floats(s[k]), to_floats(queue.pack(1, k))));
      }
      if (a.sum != nullptr) store_pack(a.sum + row * cols + c, s[k]);
      const Floats<kCount> values = to_floats(s[k]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) total[0] += values.at[i];
    }
    queue.taken();
    float first_mean = 0;
    if constexpr (kCentered) {
      row_sums<kWarpPerRow>(total, turn);
      turn ^= 1;
      first_mean = total[0] / static_cast<float>(cols);
    }
    float sums[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (threads.template column<T>(k) < cols) add_deviations(to_floats(s[k]), first_mean, sums);
    }
    row_sums<kWarpPerRow>(sums, turn);
    turn ^= 1;
    const RowStats stats = row_stats<kCentered>(first_mean, sums, cols, a.eps);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int c = threads.template column<T>(k);
      if (c >= cols) continue;
      store_floats(a.y + row * cols + c,
                   normed(to_floats(s[k]), stats, to_floats(gain[k]), to_floats(bias[k])));
    }
    if (threads.lane == 0) write_stats(a, row, stats);
  }
  cp_async_wait<0>();
}

// Kernel with a block per row. kWide: rows of packs, with s in shared memory between the passes.
// Otherwise any width and alignment, and s is read again. A thread reads only what it wrote itself.
template <typename T, bool kWide, bool kCentered>
__global__ void __launch_bounds__(kWide ? kMaxRowThreads : kGeneralThreads)
    norm_fwd_block_kernel(NormFwd<T> a) {
  await_previous_grid();
  constexpr int kCount = kWide ? kPackSize<T> : 1;
  constexpr int kStep = (kWide ? kMaxRowThreads : kGeneralThreads) * kCount;
  const int cols = a.in.cols, first = static_cast<int>(threadIdx.x) * kCount;
  const int64_t row = blockIdx.x, at = row * cols;
  T* const kept = dynamic_shared<T>();
  const T* s = kept;
  if constexpr (!kWide) s = (a.sum != nullptr ? a.sum : a.in.at[0]) + at;
  float total[1] = {0.f};
#pragma unroll 4
  for (int c = first; c < cols; c += kStep) {
    Floats<kCount> value = load_floats<kCount>(a.in.at[0] + at + c);
    if (a.in.at[1] != nullptr) value = added(value, load_floats<kCount>(a.in.at[1] + at + c));
    const Pack<T, kCount> rounded = from_floats<T>(value);
    if (a.sum != nullptr) store_pack(a.sum + at + c, rounded);
    if constexpr (kWide) store_shared_pack(kept + c, rounded);
    value = to_floats(rounded);
#pragma unroll
    for (int i = 0; i < kCount; ++i) total[0] += value.at[i];
  }
  float first_mean = 0;
  if constexpr (kCentered) {
    row_sums<false>(total, 0);
    first_mean = total[0] / static_cast<float>(cols);
  }
  float sums[2] = {0.f, 0.f};
  for (int c = first; c < cols; c += kStep) {
    add_deviations(load_floats<kCount>(s + c), first_mean, sums);
  }
  row_sums<false>(sums, 1);
  const RowStats stats = row_stats<kCentered>(first_mean, sums, cols, a.eps);
#pragma unroll 2
  for (int c = first; c < cols; c += kStep) {
    Floats<kCount> bias{};
    if (a.bias != nullptr) bias = load_floats<kCount>(a.bias + c);
    store_floats(a.y + at + c, normed(load_floats<kCount>(s + c), stats,
                                      load_floats<kCount>(a.gain + c), bias));
  }
  if (threadIdx.x == 0) write_stats(a, row, stats);
}

template <typename T, bool kCentered>
void launch_fwd(const Exec& exec, const NormFwd<T>& a) {
  if (a.in.rows == 0) return;
  const auto launch = [&]<int kPacks, bool kWarpPerRow>(int64_t threads) {
    const int64_t rows_of_block = kWarpPerRow ? threads / kWarpSize : 1;
    // The grid has as many blocks as run concurrently with up to 128 registers per thread: a block
    // stays until all rows are done.
    const int64_t resident = multiprocessors(exec) * std::clamp<int64_t>(512 / threads, 1, 8);
    simt::launch(norm_fwd_kernel<T, kPacks, kWarpPerRow, kCentered>,
                 {.grid = std::min(resident, ceil_div(a.in.rows, rows_of_block)),
                  .block = threads,
                  .smem_bytes = static_cast<size_t>(row_queue_bytes<kPacks, 2>(threads))},
                 exec, a);
  };
  const bool packed =
      rows_are_packed<T>(a.in.cols, {a.in.at[0], a.in.at[1], a.sum, a.gain, a.bias, a.y});
  if (packed && with_row_mapping<2>(exec, a.in.cols / kPackSize<T>, launch)) return;
  const int64_t bytes = int64_t{a.in.cols} * int64_t{sizeof(T)};
  if (packed && block_has_room(exec, bytes)) {
    simt::launch(norm_fwd_block_kernel<T, true, kCentered>,
                 {.grid = a.in.rows,
                  .block = kMaxRowThreads,
                  .smem_bytes = static_cast<size_t>(bytes)},
                 exec, a);
  } else {
    simt::launch(norm_fwd_block_kernel<T, false, kCentered>,
                 {.grid = a.in.rows, .block = kGeneralThreads}, exec, a);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const LayerNormFwdArgs& args) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    launch_fwd<T, true>(exec, {.in = {{args.x.as<T>(), data_of<T>(args.residual)},
                                      args.x.rows(),
                                      static_cast<int>(args.x.cols())},
                               .sum = data_of<T>(args.sum),
                               .gain = args.gain.as<T>(),
                               .bias = data_of<T>(args.bias),
                               .y = args.y.as<T>(),
                               .mean = args.mean.as<float>(),
                               .rstd = args.rstd.as<float>(),
                               .eps = args.eps});
  });
}

template <>
void run(const Exec& exec, const RmsNormFwdArgs& args) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    launch_fwd<T, false>(exec, {.in = {{args.x.as<T>(), data_of<T>(args.residual)},
                                       args.x.rows(),
                                       static_cast<int>(args.x.cols())},
                                .sum = data_of<T>(args.sum),
                                .gain = args.gain.as<T>(),
                                .bias = nullptr,
                                .y = args.y.as<T>(),
                                .mean = nullptr,
                                .rstd = args.rstd.as<float>(),
                                .eps = args.eps});
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
