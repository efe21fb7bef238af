#include "shale/kernels/check.h"
#include "shale/kernels/cuda/embedding/sort_ids.h"
#include "shale/kernels/cuda/reduce/block_scan.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/moe.h"
#include "shale/kernels/simt/simt.h"

// Assigns rows to choices. Choices are sorted stably by expert (sort_ids.h), and one block computes
// where each expert's rows begin. Then thread i finds the choice that belongs to row i, and writes
// the row of the i-th choice of the sorted order.
//
// E: number of experts.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128, kScanThreads = 256;

struct Sort {
  const int32_t* experts;  // expert of each choice
  SortedIds sorted;
  int32_t* counts;
  int32_t* offsets;
  int32_t* rows;
  int32_t* sources;
  int32_t* loads;  // null: not requested
  int64_t choices, all_rows;
  int64_t most, align;  // most: maximum rows per expert; align: a power of two
  int E;

  __device__ __forceinline__ int64_t kept(int e) const {
    const int64_t count = sorted.offsets[e + 1] - sorted.offsets[e];
    return count < most ? count : most;
  }
};

// Runs in one block; each thread has the same number of neighbouring experts.
__global__ void __launch_bounds__(kScanThreads) expert_offsets_kernel(const Sort a) {
  await_previous_grid();
  const int thread = static_cast<int>(threadIdx.x);
  const int share = (a.E + kScanThreads - 1) / kScanThreads, begin = thread * share;
  const int end = begin + share < a.E ? begin + share : a.E;
  const auto aligned = [&](int e) { return (a.kept(e) + a.align - 1) & -a.align; };
  int64_t total = 0;
  for (int e = begin; e < end; ++e) total += aligned(e);
  int64_t before = sum_before<kScanThreads>(total);
  if (thread == 0) a.offsets[0] = 0;
#pragma unroll 1  // no unrolling: a thread has one or two experts
  for (int e = begin; e < end; ++e) {
    before += aligned(e);
    a.offsets[e + 1] = static_cast<int32_t>(before);
    const int32_t count = a.sorted.offsets[e + 1] - a.sorted.offsets[e];
    a.counts[e] = count;
    if (a.loads == nullptr) continue;
    a.loads[e] += count;
    const auto dropped = static_cast<int32_t>(count - a.kept(e));
    if (dropped > 0) atomic_add(a.loads + a.E, dropped);  // integer sums do not depend on the order
  }
}

// A block owns the experts of one layer.
__global__ void __launch_bounds__(kThreads)
    balance_kernel(const int32_t* loads, float* bias, int E, float rate) {
  await_previous_grid();
  loads += int64_t{blockIdx.x} * (E + 1);
  bias += int64_t{blockIdx.x} * E;
  int64_t sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < E; e += kThreads) sum += loads[e];
  sum = block_sum(sum);
  for (int e = static_cast<int>(threadIdx.x); e < E; e += kThreads) {
    const int64_t above = int64_t{loads[e]} * E - sum;
    if (above != 0) bias[e] += above < 0 ? rate : -rate;
  }
}

// Returns the expert that `row` belongs to; E for rows after those of all experts.
__device__ __forceinline__ int expert_of(const Sort& a, int64_t row) {
  int low = 0, high = a.E;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (a.offsets[middle + 1] <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) place_rows_kernel(const Sort a) {
  await_previous_grid();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < a.all_rows) {
    const int e = expert_of(a, i);
    int32_t source = -1;
    if (e < a.E) {
      const int64_t place = i - a.offsets[e];
      if (place < a.kept(e)) source = a.sorted.order[a.sorted.offsets[e] + place];
    }
    a.sources[i] = source;
  }
  if (i >= a.choices) return;
  const int32_t choice = a.sorted.order[i], e = a.experts[choice];
  int32_t row = -1;  // -1 is the result for an invalid expert
  if (e >= 0 && e < a.E) {
    const int64_t place = i - a.sorted.offsets[e];
    if (place < a.most) row = static_cast<int32_t>(a.offsets[e] + place);
  }
  a.rows[choice] = row;
}

}  // namespace

template <>
void run(const Exec& exec, const MoeSortArgs& a) {
  const int64_t choices = a.experts.numel(), all_rows = a.sources.numel(), E = a.counts.numel();
  const Sort sort = {.experts = a.experts.as<int32_t>(),
                     .sorted = sort_ids("moe_sort", exec, a.experts, /*first=*/0, E),
                     .counts = a.counts.as<int32_t>(),
                     .offsets = a.offsets.as<int32_t>(),
                     .rows = a.rows.as<int32_t>(),
                     .sources = a.sources.as<int32_t>(),
                     .loads = a.loads.defined() ? a.loads.as<int32_t>() : nullptr,
                     .choices = choices,
                     .all_rows = all_rows,
                     .most = a.capacity > 0 ? a.capacity : choices,
                     .align = a.align,
                     .E = static_cast<int>(E)};
  simt::launch(expert_offsets_kernel, {.grid = 1, .block = kScanThreads}, exec, sort);
  const int64_t threads = all_rows > choices ? all_rows : choices;
  if (threads == 0) return;
  simt::launch(place_rows_kernel, {.grid = ceil_div(threads, kThreads), .block = kThreads}, exec,
               sort);
}

template <>
void run(const Exec& exec, const MoeBalanceArgs& a) {
  if (a.bias.numel() == 0) return;
  simt::launch(balance_kernel, {.grid = a.bias.size(0), .block = kThreads}, exec,
               a.loads.as<int32_t>(), a.bias.as<float>(), static_cast<int>(a.bias.size(1)),
               a.rate);
}

}  // namespace shale::kernels::SHALE_BACKEND
