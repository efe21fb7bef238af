#include "shale/kernels/cuda/embedding/sort_ids.h"

#include <bit>
#include <limits>
#include <utility>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/reduce/block_scan.cuh"
#include "shale/kernels/simt/simt.h"

// A stable radix sort of (id, index) pairs, one byte of the id at a time, lowest first. A warp owns
// a segment of the array and counts its digits. A scan over the counts (of all segments for digit
// 0, then for digit 1, ...) gives the destination of each segment's pairs of each digit. The warp
// then moves its pairs there, 32 at a time, in order.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kDigits = 256;
constexpr int kDigitBits = 8;
constexpr int kSegment = 1024;  // pairs per warp
constexpr int kWarps = 4;       // warps per block
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kScanThreads = 1024;

struct Pairs {
  int32_t* id;
  int32_t* number;
};

__global__ void __launch_bounds__(kThreads)
    make_pairs_kernel(const int32_t* ids, Pairs pairs, int32_t count, int32_t first, int32_t V) {
  await_previous_grid();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t id = int64_t{ids[i]} - first;
  // Invalid ids become V, which sorts last.
  pairs.id[i] = id >= 0 && id < V ? static_cast<int32_t>(id) : V;
  pairs.number[i] = static_cast<int32_t>(i);
}

struct DigitCounts {
  int32_t of_warp[kWarps][kDigits];
};

__device__ __forceinline__ int digit_of(int32_t id, int shift) {
  return (id >> shift) % kDigits;
}

// Counts the digits of each segment into counts[digit, segment].
__global__ void __launch_bounds__(kThreads)
    count_digits_kernel(const int32_t* id, int32_t count, int shift, int32_t* counts,
                        int segments) {
  await_previous_grid();
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int segment = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (segment >= segments) return;
  auto& mine = shared<DigitCounts>().of_warp[warp];
  for (int d = lane; d < kDigits; d += kWarpSize) mine[d] = 0;
  __syncwarp();
  const int64_t begin = int64_t{segment} * kSegment;
  for (int64_t i = begin + lane; i < begin + kSegment && i < count; i += kWarpSize) {
    atomic_add(&mine[digit_of(id[i], shift)], 1);  // integer sums do not depend on the order
  }
  __syncwarp();
  for (int d = lane; d < kDigits; d += kWarpSize) counts[int64_t{d} * segments + segment] = mine[d];
}

// Replaces counts[i] by the sum of the counts before it. The grid is one block.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(int32_t* counts, int64_t n) {
  await_previous_grid();
  const int64_t share = ceil_div(n, kScanThreads), begin = threadIdx.x * share;
  const int64_t end = begin + share < n ? begin + share : n;
  int32_t total = 0;
  for (int64_t i = begin; i < end; ++i) total += counts[i];
  int32_t before = sum_before<kScanThreads>(total);
  for (int64_t i = begin; i < end; ++i) {
    const int32_t value = counts[i];
    counts[i] = before;
    before += value;
  }
}

// Returns the lanes of `active` that have this lane's digit.
__device__ __forceinline__ uint32_t lanes_with(int digit, uint32_t active) {
  uint32_t same = active;
#pragma unroll
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool is_set = (digit >> bit & 1) != 0;
    const uint32_t set = ballot(is_set);
    same &= is_set ? set : ~set;
  }
  return same;
}

__global__ void __launch_bounds__(kThreads)
    move_pairs_kernel(Pairs from, Pairs to, int32_t count, int shift, const int32_t* starts,
                      int segments) {
  await_previous_grid();
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int segment = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (segment >= segments) return;
  auto& next = shared<DigitCounts>().of_warp[warp];  // where the next pair with each digit goes
  for (int d = lane; d < kDigits; d += kWarpSize) next[d] = starts[int64_t{d} * segments + segment];
  const int64_t begin = int64_t{segment} * kSegment;
  for (int64_t first = begin; first < begin + kSegment && first < count; first += kWarpSize) {
    const bool active = first + lane < count;
    const int32_t id = active ? from.id[first + lane] : 0;
    const int digit = digit_of(id, shift);
    const uint32_t peers = lanes_with(digit, ballot(active));
    const uint32_t lower = peers & ((uint32_t{1} << lane) - 1);
    __syncwarp();  // from here on, `next` includes the previous 32 pairs
    if (active) {
      const int32_t at = next[digit] + std::popcount(lower);
      to.id[at] = id;
      to.number[at] = from.number[first + lane];
    }
    __syncwarp();
    if (active && lower == 0) next[digit] += std::popcount(peers);
  }
}

// Computes offsets[v] = the first position of an id of at least v, for v in [0, V].
__global__ void __launch_bounds__(kThreads)
    offsets_kernel(const int32_t* id, int32_t count, int32_t* offsets, int32_t V) {
  await_previous_grid();
  const int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (v > V) return;
  int32_t low = 0, high = count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (id[middle] < v) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  offsets[v] = low;
}

}  // namespace

SortedIds sort_ids(const char* op, const Exec& exec, const View& ids, int64_t first, int64_t V) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - kSegment;
  if (ids.numel() > kMost || V > kMost) {
    throw ShapeError(
        cat(op, ": ids is ", ids, " for ", V, " rows, expected at most ", kMost, " ids and rows"));
  }
  const auto count = static_cast<int32_t>(ids.numel());
  const auto segments = static_cast<int>(ceil_div(count, kSegment));
  const int64_t counts_size = int64_t{kDigits} * segments;
  auto* memory = scratch<int32_t>(op, exec, 4 * int64_t{count} + counts_size + V + 1);
  Pairs from = {memory, memory + count},
        to = {memory + 2 * int64_t{count}, memory + 3 * int64_t{count}};
  int32_t* counts = memory + 4 * int64_t{count};
  int32_t* offsets = counts + counts_size;
  if (count > 0) {
    simt::launch(make_pairs_kernel, {.grid = ceil_div(count, kThreads), .block = kThreads}, exec,
                 ids.as<int32_t>(), from, count, static_cast<int32_t>(first),
                 static_cast<int32_t>(V));
  }
  const int64_t blocks = ceil_div(segments, kWarps);
  for (int shift = 0; count > 0 && V >> shift > 0; shift += kDigitBits) {
    simt::launch(count_digits_kernel, {.grid = blocks, .block = kThreads}, exec, from.id, count,
                 shift, counts, segments);
    simt::launch(scan_kernel, {.grid = 1, .block = kScanThreads}, exec, counts, counts_size);
    simt::launch(move_pairs_kernel, {.grid = blocks, .block = kThreads}, exec, from, to, count,
                 shift, counts, segments);
    std::swap(from, to);
  }
  simt::launch(offsets_kernel, {.grid = ceil_div(V + 1, kThreads), .block = kThreads}, exec,
               from.id, count, offsets, static_cast<int32_t>(V));
  return {.order = from.number, .offsets = offsets};
}

}  // namespace shale::kernels::SHALE_BACKEND
