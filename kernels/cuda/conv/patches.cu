#include "shale/kernels/cuda/conv/patches.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/simt/simt.h"

// Copies: a thread owns a pack of neighbouring channels of a patch, of a pixel, or one element
// where channels are no whole packs.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

int64_t blocks_of(int64_t elements) {
  return ceil_div(elements, int64_t{kThreads});
}

// Whether packs of 16 bytes can be moved from there on.
bool starts_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// The thread's number in the grid.
__device__ __forceinline__ int64_t thread_number() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(PatchShape s, const T* x, T* patches, int64_t count) {
  await_previous_grid();
  const int64_t i = thread_number();
  if (i >= count) return;
  const int packs = s.padded_depth / kCount;
  const int64_t patch = i / packs;
  const int k = static_cast<int>(i % packs) * kCount;
  Pack<T, kCount> pack{};
  if (k < s.depth) {
    const int windows = s.out_rows * s.out_cols;
    const int64_t image = patch / windows;
    const int window = static_cast<int>(patch % windows);
    const int tap = k / s.channels, channel = k % s.channels;
    const int row = window / s.out_cols * s.stride + tap / s.kernel_cols - s.padding;
    const int col = window % s.out_cols * s.stride + tap % s.kernel_cols - s.padding;
    if (row >= 0 && row < s.rows && col >= 0 && col < s.cols) {
      pack = load_pack<kCount>(x + ((image * s.rows + row) * s.cols + col) * s.channels + channel);
    }
  }
  store_pack(patches + patch * s.padded_depth + k, pack);
}

// Windows that hold a pixel of a line: those from `begin` on below `end`.
struct Holders {
  int begin, end;
};

__device__ __forceinline__ Holders holders_of(int pixel, int kernel, int count, int stride,
                                              int padding) {
  const int place = pixel + padding;
  const int begin = place < kernel ? 0 : (place - kernel) / stride + 1;
  const int end = place / stride + 1;
  return {begin, end < count ? end : count};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_kernel(PatchShape s, const float* patches, T* dx, int64_t count) {
  await_previous_grid();
  const int64_t i = thread_number();
  if (i >= count) return;
  const int channel = static_cast<int>(i % s.channels);
  const int64_t pixel = i / s.channels;
  const int col = static_cast<int>(pixel % s.cols);
  const int row = static_cast<int>(pixel / s.cols % s.rows);
  const int64_t image = pixel / s.cols / s.rows;
  const Holders down = holders_of(row, s.kernel_rows, s.out_rows, s.stride, s.padding);
  const Holders across = holders_of(col, s.kernel_cols, s.out_cols, s.stride, s.padding);
  float sum = 0;
  for (int r = down.begin; r < down.end; ++r) {
    const int u = row + s.padding - r * s.stride;
    for (int c = across.begin; c < across.end; ++c) {
      const int v = col + s.padding - c * s.stride;
      const int64_t patch = (image * s.out_rows + r) * s.out_cols + c;
      sum += patches[patch * s.padded_depth + (u * s.kernel_cols + v) * s.channels + channel];
    }
  }
  dx[i] = from_float<T>(sum);
}

// Element [o, c, u, v] of dense weights that stands at `k` of a patch.
__device__ __forceinline__ int64_t weight_at(const PatchShape& s, int64_t out, int k) {
  const int tap = k / s.channels, channel = k % s.channels;
  return (out * s.channels + channel) * (s.kernel_rows * s.kernel_cols) + tap;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    pack_weights_kernel(PatchShape s, const T* weight, T* packed, int64_t count) {
  await_previous_grid();
  const int64_t i = thread_number();
  if (i >= count) return;
  const int k = static_cast<int>(i % s.padded_depth);
  packed[i] = k < s.depth ? weight[weight_at(s, i / s.padded_depth, k)] : from_float<T>(0.f);
}

__global__ void __launch_bounds__(kThreads)
    unpack_weights_kernel(PatchShape s, const float* packed, ColumnSumTarget dweight,
                          int64_t count) {
  await_previous_grid();
  const int64_t i = thread_number();
  if (i >= count) return;
  const int k = static_cast<int>(i % s.depth);
  const int64_t out = i / s.depth;
  store_column_sum(dweight, weight_at(s, out, k), packed[out * s.padded_depth + k]);
}

}  // namespace

void gather_patches(const Exec& exec, const PatchShape& s, const View& x, void* patches) {
  const int64_t count = x.size(0) * s.out_rows * s.out_cols * s.padded_depth;
  dispatch_float(x.dtype, [&]<typename T>() {
    const auto launch = [&](auto kernel, int64_t threads) {
      simt::launch(kernel, {.grid = blocks_of(threads), .block = kThreads}, exec, s, x.as<T>(),
                   static_cast<T*>(patches), threads);
    };
    constexpr int kCount = kPackSize<T>;
    const bool packed =
        s.channels % kCount == 0 && starts_aligned(x.data) && starts_aligned(patches);
    if (packed) return launch(gather_kernel<T, kCount>, count / kCount);
    launch(gather_kernel<T, 1>, count);
  });
}

void add_patches(const Exec& exec, const PatchShape& s, const float* patches, const View& dx) {
  dispatch_float(dx.dtype, [&]<typename T>() {
    simt::launch(add_kernel<T>, {.grid = blocks_of(dx.numel()), .block = kThreads}, exec, s,
                 patches, dx.as<T>(), dx.numel());
  });
}

void pack_weights(const Exec& exec, const PatchShape& s, const View& weight, void* packed) {
  const int64_t count = weight.size(0) * s.padded_depth;
  dispatch_float(weight.dtype, [&]<typename T>() {
    simt::launch(pack_weights_kernel<T>, {.grid = blocks_of(count), .block = kThreads}, exec, s,
                 weight.as<T>(), static_cast<T*>(packed), count);
  });
}

void unpack_weights(const Exec& exec, const PatchShape& s, const float* packed, const View& dweight,
                    bool accumulate) {
  simt::launch(unpack_weights_kernel, {.grid = blocks_of(dweight.numel()), .block = kThreads}, exec,
               s, packed, column_sum_target(dweight, accumulate), dweight.numel());
}

}  // namespace shale::kernels::SHALE_BACKEND
