#include "shale/kernels/loss.h"

#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/loss/row_softmax.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// A block owns a row. Where shared memory holds it (50304 columns of 16 bits are 98 KiB), logits
// are read once and gradients written once, and the next row is fetched meanwhile if there is room
// for two. A longer row, or one that is not aligned, is read twice, the second time from the caches
// as far as they hold it.
//
// Either way the first pass keeps a maximum and a sum of exponentials per thread
// (arXiv:1805.02867).

namespace shale::kernels::SHALE_BACKEND {
namespace {

template <typename T>
struct CrossEntropy {
  T* logits;
  const int32_t* targets;
  float* losses;
  const StepState* step;  // null: no gradient
  int64_t rows, stride;
  int cols, vocab;
  float softcap, inverse_softcap;  // 0: none
};

template <typename T>
__device__ __forceinline__ float capped(const CrossEntropy<T>& a, float logit) {
  return a.softcap == 0 ? logit : a.softcap * tanhf(logit * a.inverse_softcap);
}

// As they count.
template <int kCount, typename T>
__device__ __forceinline__ Floats<kCount> logits_at(const CrossEntropy<T>& a, const T* from) {
  Floats<kCount> x = load_floats<kCount>(from);
  if (a.softcap == 0) return x;
#pragma unroll
  for (int i = 0; i < kCount; ++i) x.at[i] = capped(a, x.at[i]);
  return x;
}

// The row's loss, by one thread. `logit` is the target's.
template <typename T>
__device__ __forceinline__ RowGradient finish_row(const CrossEntropy<T>& a, int64_t r, int target,
                                                  float logit, const RowSoftmax& row) {
  if (threadIdx.x == 0) a.losses[r] = logf(row.sum) - (logit - row.max);
  return gradient_row(row, a.step, target, a.vocab, a.inverse_softcap);
}

// Loss and gradient of a row that is not counted: zeros; where the target is out of range NaN,
// which no run survives unnoticed.
template <typename T, int kCount>
__device__ __forceinline__ void write_constant(const CrossEntropy<T>& a, int64_t r, RowKind kind) {
  const float value = kind == RowKind::kIgnored ? 0.f : NAN;
  if (threadIdx.x == 0) a.losses[r] = value;
  if (a.step == nullptr) return;
  Floats<kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.at[i] = value;
  const int threads = static_cast<int>(blockDim.x);
  for (int c = static_cast<int>(threadIdx.x) * kCount; c < a.cols; c += threads * kCount) {
    store_floats(a.logits + r * a.stride + c, values);
  }
}

// ---- Rows in shared memory ----

// Row r belongs to block r mod gridDim.x. A thread fetches, reads and writes the same packs of a
// row, so that only sums need the other threads.
template <typename T>
__global__ void __launch_bounds__(1024)
    cross_entropy_shared_kernel(CrossEntropy<T> a, int buffers) {
  await_previous_grid();
  constexpr int kCount = kPackSize<T>;
  T* const shared_rows = dynamic_shared<T>();
  const int first = static_cast<int>(threadIdx.x) * kCount;
  const int step = static_cast<int>(blockDim.x) * kCount;
  const auto fetch = [&](int64_t r, int buffer) {
    if (r < a.rows && kind_of(a.targets[r], a.vocab) == RowKind::kCounts) {
      const T* from = a.logits + r * a.stride;
      for (int c = first; c < a.cols; c += step) {
        cp_async<16>(shared_rows + int64_t{buffer} * a.cols + c, from + c);
      }
    }
    cp_async_commit();
  };
  int buffer = 0;
  fetch(blockIdx.x, 0);
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const T* row = shared_rows + int64_t{buffer} * a.cols;
    if (buffers == 2) {
      fetch(r + gridDim.x, buffer ^ 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    const int target = a.targets[r];
    const RowKind kind = kind_of(target, a.vocab);
    if (kind == RowKind::kCounts) {
      RowSoftmax mine;
      for (int c = first; c < a.cols; c += step) {
        if (c < a.vocab) add_logits(mine, logits_at<kCount>(a, row + c), c, a.vocab);
      }
      const float logit = capped(a, to_float(a.logits[r * a.stride + target]));
      // The sums' barriers stand between the read of the logit and the write over it.
      const RowGradient gradient = finish_row(a, r, target, logit, softmax_of_block(mine));
      if (a.step != nullptr) {
        for (int c = first; c < a.cols; c += step) {
          const auto x = logits_at<kCount>(a, row + c);
          store_floats(a.logits + r * a.stride + c, gradient_of(x, c, gradient));
        }
      }
    } else {
      write_constant<T, kCount>(a, r, kind);
    }
    if (buffers == 2) {
      buffer ^= 1;
    } else {
      fetch(r + gridDim.x, 0);
    }
  }
  cp_async_wait<0>();
}

// ---- Rows that are read twice ----

constexpr int kTwiceThreads = 512;

template <typename T, int kCount>
__global__ void __launch_bounds__(kTwiceThreads) cross_entropy_twice_kernel(CrossEntropy<T> a) {
  await_previous_grid();
  const int64_t r = blockIdx.x;
  const int target = a.targets[r];
  const RowKind kind = kind_of(target, a.vocab);
  if (kind != RowKind::kCounts) {  // the whole block
    write_constant<T, kCount>(a, r, kind);
    return;
  }
  T* row = a.logits + r * a.stride;
  const int first = static_cast<int>(threadIdx.x) * kCount;
  constexpr int kStep = kTwiceThreads * kCount;
  RowSoftmax mine;
#pragma unroll 4
  for (int c = first; c < a.vocab; c += kStep) {
    add_logits(mine, logits_at<kCount>(a, row + c), c, a.vocab);
  }
  const float logit = capped(a, to_float(row[target]));
  const RowGradient gradient = finish_row(a, r, target, logit, softmax_of_block(mine));
  if (a.step == nullptr) return;
  for (int c = first; c < a.cols; c += kStep) {
    store_floats(row + c, gradient_of(logits_at<kCount>(a, row + c), c, gradient));
  }
}

// ---- Host ----

// Shared memory that a block may have, less what the sums take.
int64_t shared_bytes(const Exec& exec) {
  return static_cast<int64_t>(gpu_model(exec.device.arch).block_shared_bytes) - 1024;
}

template <typename T>
void launch(const Exec& exec, const CrossEntropy<T>& a) {
  constexpr int kCount = kPackSize<T>;
  const bool packed = a.cols % kCount == 0 && a.stride % kCount == 0 &&
                      reinterpret_cast<uintptr_t>(a.logits) % 16 == 0;
  const int64_t row_bytes = a.cols * int64_t{sizeof(T)}, available = shared_bytes(exec);
  if (packed && row_bytes <= available) {
    // At least four packs to a thread, and about as many to each. Long rows have one block of many
    // threads, of short ones as many run as a multiprocessor has room for.
    const int64_t packs = a.cols / kCount, of_thread = std::max<int64_t>(4, ceil_div(packs, 1024));
    const int64_t threads = ceil_div(ceil_div(packs, of_thread), kWarpSize) * kWarpSize;
    const int buffers = 2 * row_bytes <= available ? 2 : 1;
    const int64_t blocks_of_processor =
        std::max<int64_t>(1, std::min(available / (buffers * row_bytes + 1024), 2048 / threads));
    simt::launch(cross_entropy_shared_kernel<T>,
                 {.grid = std::min(a.rows, multiprocessors(exec) * blocks_of_processor),
                  .block = threads,
                  .smem_bytes = static_cast<size_t>(buffers * row_bytes)},
                 exec, a, buffers);
  } else if (packed) {
    simt::launch(cross_entropy_twice_kernel<T, kCount>, {.grid = a.rows, .block = kTwiceThreads},
                 exec, a);
  } else {
    simt::launch(cross_entropy_twice_kernel<T, 1>, {.grid = a.rows, .block = kTwiceThreads}, exec,
                 a);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const CrossEntropyArgs& args) {
  if (args.write_grad) step_of("cross_entropy", exec);
  if (args.logits.size(0) == 0) return;
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    launch<T>(exec, {.logits = args.logits.as<T>(),
                     .targets = args.targets.as<int32_t>(),
                     .losses = args.losses.as<float>(),
                     .step = args.write_grad ? exec.step : nullptr,
                     .rows = args.logits.size(0),
                     .stride = args.logits.stride(0),
                     .cols = static_cast<int>(args.logits.cols()),
                     .vocab = static_cast<int>(args.vocab),
                     .softcap = args.softcap,
                     .inverse_softcap = args.softcap > 0 ? 1 / args.softcap : 0.f});
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
