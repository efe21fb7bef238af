#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/loss/row_softmax.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/simt/simt.h"

// Cross-entropy with a sharded vocabulary. A block owns a row of a vocabulary shard. Every warp
// merges the stats of all shards: a lane has one shard, and the butterfly over the lanes adds them
// as a binary tree.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 512;

template <typename T>
struct VocabularyPart {
  T* logits;
  const int32_t* targets;
  float* stats;           // stats of this shard, or of all shards
  float* losses;          // null: not requested
  const StepState* step;  // null: no gradient is computed
  int64_t rows, stride, parts;
  int cols, counted;        // counted: number of this shard's columns that are not padding
  int first_column, vocab;  // vocab: number of columns of all shards that are not padding
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) stats_kernel(VocabularyPart<T> a) {
  await_previous_grid();
  const int64_t r = blockIdx.x;
  const int target = a.targets[r];
  const RowKind kind = kind_of(target, a.vocab);
  float* const stats = a.stats + 3 * r;
  if (kind != RowKind::kCounts) {  // `kind` is the same in all threads of the block
    if (threadIdx.x < 3) stats[threadIdx.x] = kind == RowKind::kIgnored ? 0.f : NAN;
    return;
  }
  const T* row = a.logits + r * a.stride;
  RowSoftmax mine;
#pragma unroll 4
  for (int c = static_cast<int>(threadIdx.x) * kCount; c < a.counted; c += kThreads * kCount) {
    add_logits(mine, load_floats<kCount>(row + c), c, a.counted);
  }
  const RowSoftmax found = softmax_of_block(mine);
  if (threadIdx.x != 0) return;
  const int own = target - a.first_column;
  stats[0] = found.max;
  stats[1] = found.sum;
  stats[2] = own >= 0 && own < a.counted ? to_float(row[own]) : -INFINITY;
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) grad_kernel(VocabularyPart<T> a) {
  await_previous_grid();
  const int64_t r = blockIdx.x;
  const int target = a.targets[r];
  const RowKind kind = kind_of(target, a.vocab);
  T* const row = a.logits + r * a.stride;
  const int first = static_cast<int>(threadIdx.x) * kCount;
  if (kind != RowKind::kCounts) {  // `kind` is the same in all threads of the block
    const float value = kind == RowKind::kIgnored ? 0.f : NAN;
    if (threadIdx.x == 0 && a.losses != nullptr) a.losses[r] = value;
    if (a.step == nullptr) return;
    Floats<kCount> values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.at[i] = value;
    for (int c = first; c < a.cols; c += kThreads * kCount) store_floats(row + c, values);
    return;
  }
  const int lane = threadIdx.x % kWarpSize;
  const bool has_part = lane < a.parts;
  const float* const stats = a.stats + 3 * ((has_part ? lane : 0) * a.rows + r);
  RowSoftmax merged;
  merged.max = warp_max(stats[0]);
  merged.sum = warp_sum(has_part ? stats[1] * exp_of(stats[0] - merged.max) : 0.f);
  const float logit = warp_max(stats[2]);
  if (threadIdx.x == 0 && a.losses != nullptr) {
    a.losses[r] = logf(merged.sum) - (logit - merged.max);
  }
  if (a.step == nullptr) return;
  const RowGradient gradient = gradient_row(merged, a.step, target - a.first_column, a.counted);
  for (int c = first; c < a.cols; c += kThreads * kCount) {
    store_floats(row + c, gradient_of(load_floats<kCount>(row + c), c, gradient));
  }
}

// Calls fn.template operator()<kCount>() with the largest kCount that the rows' alignment allows.
template <typename T, class Fn>
void dispatch_packs(const VocabularyPart<T>& a, const Fn& fn) {
  constexpr int kCount = kPackSize<T>;
  const bool packed = a.cols % kCount == 0 && a.stride % kCount == 0 &&
                      reinterpret_cast<uintptr_t>(a.logits) % 16 == 0;
  if (packed) {
    fn.template operator()<kCount>();
  } else {
    fn.template operator()<1>();
  }
}

template <typename T, class Args>
VocabularyPart<T> part_of(const Args& args) {
  const int64_t cols = args.logits.cols();
  return {.logits = args.logits.template as<T>(),
          .targets = args.targets.template as<int32_t>(),
          .stats = args.stats.template as<float>(),
          .losses = nullptr,
          .step = nullptr,
          .rows = args.logits.size(0),
          .stride = args.logits.stride(0),
          .parts = 1,
          .cols = static_cast<int>(cols),
          .counted = static_cast<int>(std::clamp<int64_t>(args.vocab - args.first_column, 0, cols)),
          .first_column = static_cast<int>(args.first_column),
          .vocab = static_cast<int>(args.vocab)};
}

}  // namespace

template <>
void run(const Exec& exec, const CrossEntropyStatsArgs& args) {
  if (args.logits.size(0) == 0) return;
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    const VocabularyPart<T> a = part_of<T>(args);
    dispatch_packs(a, [&]<int kCount>() {
      simt::launch(stats_kernel<T, kCount>, {.grid = a.rows, .block = kThreads}, exec, a);
    });
  });
}

template <>
void run(const Exec& exec, const CrossEntropyGradArgs& args) {
  if (args.write_grad) step_of("cross_entropy_grad", exec);
  if (args.logits.size(0) == 0) return;
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    VocabularyPart<T> a = part_of<T>(args);
    a.losses = args.losses.defined() ? args.losses.as<float>() : nullptr;
    a.step = args.write_grad ? exec.step : nullptr;
    a.parts = args.stats.size(0);
    dispatch_packs(a, [&]<int kCount>() {
      simt::launch(grad_kernel<T, kCount>, {.grid = a.rows, .block = kThreads}, exec, a);
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
