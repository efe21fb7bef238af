#include "shale/kernels/loss.h"

#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/loss/row_softmax.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Softmax cross-entropy. A block owns a row. It reads and writes the row once if the row fits
// shared memory (50304 columns of 16 bits are 98 KiB), or shared memory and registers together (256
// and 320 KiB). While the block writes gradients, it loads the next row over the logits that it no
// longer needs, and the first pass over that row begins with the parts that have arrived. Longer or
// unaligned rows are read twice, the second time partly from the caches.
//
// In both cases the first pass keeps a maximum and a sum of exponentials per thread
// (arXiv:1805.02867).

namespace shale::kernels::SHALE_BACKEND {
namespace {

template <typename T>
struct CrossEntropy {
  T* logits;
  const int32_t* targets;
  float* losses;
  const StepState* step;  // null: no gradient is computed
  int64_t rows, stride;
  int cols, vocab;
  float softcap, inverse_softcap;  // 0: no softcap
};

// kCapped: true if there is a softcap.
template <bool kCapped, typename T>
__device__ __forceinline__ float capped(const CrossEntropy<T>& a, float logit) {
  return kCapped ? a.softcap * tanhf(logit * a.inverse_softcap) : logit;
}

// Applies the softcap to a pack.
template <bool kCapped, int kCount, typename T>
__device__ __forceinline__ Floats<kCount> capped(const CrossEntropy<T>& a, Floats<kCount> x) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x.at[i] = capped<kCapped>(a, x.at[i]);
  return x;
}

// Writes the row's loss, in one thread. `logit` is the target's logit.
template <typename T>
__device__ __forceinline__ RowGradient finish_row(const CrossEntropy<T>& a, int64_t r, int target,
                                                  float logit, const RowSoftmax& row) {
  if (threadIdx.x == 0) a.losses[r] = logf(row.sum) - (logit - row.max);
  return gradient_row(row, a.step, target, a.vocab, a.inverse_softcap);
}

// Writes the loss and gradients of a row whose target is kIgnoreTarget or out of range: zeros, or
// NaN if it is out of range, which makes the total loss NaN.
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

// ---- Rows that are read once ----

constexpr int kGroups = 4;  // number of cp.async groups in which a row arrives

// The words of a pack. It takes 4 registers, even if the compiler uses parts of it twice.
struct PackWords {
  int at[4];
};
template <typename T>
__device__ __forceinline__ PackWords words_of(const Pack<T>& pack) {
  return std::bit_cast<PackWords>(pack);
}
template <typename T>
__device__ __forceinline__ Pack<T> pack_of(PackWords words) {
#pragma unroll
  for (int& word : words.at) word = opaque(word);
  return std::bit_cast<Pack<T>>(words);
}

// The packs of a row that a thread owns, interleaved with its neighbours' packs. The last kTail
// packs are in registers, the other packs in shared memory. No other thread accesses them.
template <typename T, int kTail>
struct OwnPacks {
  static constexpr int kCount = kPackSize<T>;
  T* shared = dynamic_shared<T>();
  int first = static_cast<int>(threadIdx.x) * kCount;
  int step = static_cast<int>(blockDim.x) * kCount;
  // Columns in shared memory, all columns, columns per cp.async group.
  int shared_cols, cols, of_group;
  PackWords tail[kTail > 0 ? kTail : 1];

  __device__ __forceinline__ OwnPacks(int in_shared, int all)
      : shared_cols(in_shared),
        cols(all),
        of_group(ceil_div(ceil_div(in_shared, step), kGroups) * step) {}

  // Calls visit(c) for the first column c of each of the thread's packs in a group.
  template <typename Visit>
  __device__ __forceinline__ void for_group(int group, const Visit& visit) const {
    const int last = (group + 1) * of_group, end = last < shared_cols ? last : shared_cols;
    for (int c = first + group * of_group; c < end; c += step) visit(c);
  }
  // Calls visit(words, c) for the thread's packs in registers.
  template <typename Visit>
  __device__ __forceinline__ void for_tail(const Visit& visit) {
    if constexpr (kTail > 0) {
#pragma unroll
      for (int i = 0; i < kTail; ++i) {
        const int c = shared_cols + first + i * step;
        if (c < cols) visit(tail[i], c);
      }
    }
  }

  // Starts to read a row. If the row is null, commits empty groups, because waits count groups.
  __device__ __forceinline__ void fetch(const T* row) {
    if (row != nullptr) {
      for_tail([&](PackWords& words, int c) { words = words_of(load_pack(row + c)); });
    }
    for (int group = 0; group < kGroups; ++group) {
      if (row != nullptr) for_group(group, [&](int c) { cp_async<16>(shared + c, row + c); });
      cp_async_commit();
    }
  }

  // Adds the packs of the row that was fetched to the softmax.
  template <bool kCapped, int kGroup = 0>
  __device__ __forceinline__ void add(RowSoftmax& mine, const CrossEntropy<T>& a) {
    const auto add_pack = [&](const Pack<T, kCount>& pack, int c) {
      if (c < a.vocab) add_logits(mine, capped<kCapped>(a, to_floats(pack)), c, a.vocab);
    };
    if constexpr (kGroup < kGroups) {
      cp_async_wait<kGroups - 1 - kGroup>();
      for_group(kGroup, [&](int c) { add_pack(load_pack(shared + c), c); });
      add<kCapped, kGroup + 1>(mine, a);
    } else {
      for_tail([&](const PackWords& words, int c) { add_pack(pack_of<T>(words), c); });
    }
  }

  // Writes the gradient to `row`. Also starts to load the row `next`, like fetch(), into the
  // registers and shared memory that become free. `next` may be null.
  template <bool kCapped>
  __device__ __forceinline__ void replace(const CrossEntropy<T>& a, T* row,
                                          const RowGradient& gradient, const T* next) {
    const auto write = [&](const Pack<T, kCount>& pack, int c) {
      store_floats(row + c, gradient_of<kCapped>(capped<kCapped>(a, to_floats(pack)), c, gradient));
    };
    for_tail([&](PackWords& words, int c) {
      write(pack_of<T>(words), c);
      if (next != nullptr) words = words_of(load_pack(next + c));
    });
    for (int group = 0; group < kGroups; ++group) {
      for_group(group, [&](int c) {
        write(load_pack(shared + c), c);
        if (next != nullptr) cp_async<16>(shared + c, next + c);
      });
      cp_async_commit();
    }
  }
};

// Returns the row `r` to read, or null if its logits are not needed.
template <typename T>
__device__ __forceinline__ const T* row_to_read(const CrossEntropy<T>& a, int64_t r, int target) {
  return kind_of(target, a.vocab) == RowKind::kCounts ? a.logits + r * a.stride : nullptr;
}

constexpr int kTailThreads = 512;

// Kernel for rows that are read once. Row r belongs to block r mod gridDim.x.
template <typename T, int kTail, bool kCapped>
__global__ void __launch_bounds__(kTail > 0 ? kTailThreads : 1024)
    cross_entropy_once_kernel(CrossEntropy<T> a, int shared_cols) {
  await_previous_grid();
  OwnPacks<T, kTail> own(shared_cols, a.cols);
  int target = a.targets[blockIdx.x];
  own.fetch(row_to_read(a, blockIdx.x, target));
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    T* const row = a.logits + r * a.stride;
    const RowKind kind = kind_of(target, a.vocab);
    const int64_t next = r + gridDim.x;
    const int next_target = next < a.rows ? a.targets[next] : kIgnoreTarget;
    if (kind == RowKind::kCounts) {
      // The barriers in the reductions order this read of the logit before the write of its
      // gradient.
      const float logit = capped<kCapped>(a, to_float(row[target]));
      RowSoftmax mine;
      own.template add<kCapped>(mine, a);
      const RowGradient gradient = finish_row(a, r, target, logit, softmax_of_block(mine));
      const T* const after = row_to_read(a, next, next_target);
      if (a.step != nullptr) {
        own.template replace<kCapped>(a, row, gradient, after);
      } else {
        own.fetch(after);
      }
    } else {
      write_constant<T, kPackSize<T>>(a, r, kind);
      own.fetch(row_to_read(a, next, next_target));
    }
    target = next_target;
  }
  cp_async_wait<0>();
}

// ---- Rows that are read twice ----

constexpr int kTwiceThreads = 512;

template <typename T, int kCount, bool kCapped>
__global__ void __launch_bounds__(kTwiceThreads) cross_entropy_twice_kernel(CrossEntropy<T> a) {
  await_previous_grid();
  const int64_t r = blockIdx.x;
  const int target = a.targets[r];
  const RowKind kind = kind_of(target, a.vocab);
  if (kind != RowKind::kCounts) {  // `kind` is the same in all threads of the block
    write_constant<T, kCount>(a, r, kind);
    return;
  }
  T* row = a.logits + r * a.stride;
  const int first = static_cast<int>(threadIdx.x) * kCount;
  constexpr int kStep = kTwiceThreads * kCount;
  RowSoftmax mine;
#pragma unroll 4
  for (int c = first; c < a.vocab; c += kStep) {
    add_logits(mine, capped<kCapped>(a, load_floats<kCount>(row + c)), c, a.vocab);
  }
  const float logit = capped<kCapped>(a, to_float(row[target]));
  const RowGradient gradient = finish_row(a, r, target, logit, softmax_of_block(mine));
  if (a.step == nullptr) return;
  for (int c = first; c < a.cols; c += kStep) {
    const Floats<kCount> x = capped<kCapped>(a, load_floats<kCount>(row + c));
    store_floats(row + c, gradient_of<kCapped>(x, c, gradient));
  }
}

// ---- Host ----

// Returns the shared memory that a block may use for rows, besides that of the reductions.
int64_t shared_bytes(const Exec& exec) {
  return static_cast<int64_t>(gpu_model(exec.device.arch).block_shared_bytes) - 1024;
}

// Launches the kernel for rows that fit shared memory. A thread has at least four packs, and all
// threads have about the same number. Long rows use one block of many threads; for short rows, as
// many blocks run as fit a multiprocessor.
template <typename T, bool kCapped>
void launch_once(const Exec& exec, const CrossEntropy<T>& a, int64_t row_bytes) {
  const int64_t blocks_of_processor = shared_bytes(exec) / (row_bytes + 1024);
  const int64_t most_threads = blocks_of_processor > 1 ? 512 : 1024;
  const int64_t packs = a.cols / kPackSize<T>;
  const int64_t of_thread = std::max<int64_t>(4, ceil_div(packs, most_threads));
  const int64_t threads = ceil_div(ceil_div(packs, of_thread), kWarpSize) * kWarpSize;
  const int64_t blocks =
      multiprocessors(exec) * std::clamp<int64_t>(blocks_of_processor, 1, 2048 / threads);
  simt::launch(cross_entropy_once_kernel<T, 0, kCapped>,
               {.grid = std::min(a.rows, blocks),
                .block = threads,
                .smem_bytes = static_cast<size_t>(row_bytes)},
               exec, a, a.cols);
}

// Launches the kernel for rows that fit shared memory and registers together; returns false if they
// do not.
template <typename T, bool kCapped>
bool launch_with_tail(const Exec& exec, const CrossEntropy<T>& a) {
  constexpr int64_t kStep = kTailThreads * kPackSize<T>;
  const int64_t shared_cols = shared_bytes(exec) / int64_t{sizeof(T)} / kStep * kStep;
  const int64_t tail = ceil_div(a.cols - shared_cols, kStep);
  const auto launch = [&](auto kernel) {
    simt::launch(kernel,
                 {.grid = std::min(a.rows, multiprocessors(exec)),
                  .block = kTailThreads,
                  .smem_bytes = static_cast<size_t>(shared_cols) * sizeof(T)},
                 exec, a, static_cast<int>(shared_cols));
    return true;
  };
  if (tail <= 4) return launch(cross_entropy_once_kernel<T, 4, kCapped>);
  if (tail <= 12) return launch(cross_entropy_once_kernel<T, 12, kCapped>);
  return false;
}

template <typename T, bool kCapped>
void launch(const Exec& exec, const CrossEntropy<T>& a) {
  constexpr int kCount = kPackSize<T>;
  const bool packed = a.cols % kCount == 0 && a.stride % kCount == 0 &&
                      reinterpret_cast<uintptr_t>(a.logits) % 16 == 0;
  const int64_t row_bytes = a.cols * int64_t{sizeof(T)};
  if (packed && row_bytes <= shared_bytes(exec)) return launch_once<T, kCapped>(exec, a, row_bytes);
  if (packed && launch_with_tail<T, kCapped>(exec, a)) return;
  simt::launch(packed ? cross_entropy_twice_kernel<T, kCount, kCapped>
                      : cross_entropy_twice_kernel<T, 1, kCapped>,
               {.grid = a.rows, .block = kTwiceThreads}, exec, a);
}

}  // namespace

template <>
void run(const Exec& exec, const CrossEntropyArgs& args) {
  if (args.write_grad) step_of("cross_entropy", exec);
  if (args.logits.size(0) == 0) return;
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    const CrossEntropy<T> a = {.logits = args.logits.as<T>(),
                               .targets = args.targets.as<int32_t>(),
                               .losses = args.losses.as<float>(),
                               .step = args.write_grad ? exec.step : nullptr,
                               .rows = args.logits.size(0),
                               .stride = args.logits.stride(0),
                               .cols = static_cast<int>(args.logits.cols()),
                               .vocab = static_cast<int>(args.vocab),
                               .softcap = args.softcap,
                               .inverse_softcap = args.softcap > 0 ? 1 / args.softcap : 0.f};
    if (args.softcap > 0) {
      launch<T, true>(exec, a);
    } else {
      launch<T, false>(exec, a);
    }
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
