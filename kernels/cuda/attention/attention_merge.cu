// Kernel of attention_merge: 16 lanes process a row, which is one query of one head.

#include "shale/kernels/attention_problem.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256, kLanes = 16;

// lse and part_lse are [batch, heads, queries], as HeadViews with one element per row.
struct MergeParams {
  int64_t rows = 0, queries = 0;
  int heads = 0, head_size = 0;
  HeadView sum, part, lse, part_lse;
};

// Computes y = weight y + part_weight x for `kCount` neighbours. Values with weight 0 may be NaN.
template <int kCount, typename T>
__device__ __forceinline__ void merge_neighbours(float* y, const T* x,
                                                 const MergeWeights& weights) {
  auto sum = load_floats<kCount>(y);
  const auto part = load_floats<kCount>(x);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float left = weights.sum == 0.f ? 0.f : sum.at[i] * weights.sum;
    sum.at[i] = weights.part == 0.f ? left : fmaf(part.at[i], weights.part, left);
  }
  store_floats<float>(y, sum);
}

template <typename T>
__device__ __forceinline__ T* row_at(const HeadView& view, int64_t batch, int64_t query, int head) {
  return static_cast<T*>(view.data) + batch * view.batch_stride + query * view.row_stride +
         head * view.head_stride;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_merge_kernel(const __grid_constant__ MergeParams p) {
  await_previous_grid();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const bool is_row = row < p.rows;
  const int head = static_cast<int>(row % p.heads);
  const int64_t query = row / p.heads % p.queries, batch = row / p.heads / p.queries;
  float* const lse = row_at<float>(p.lse, batch, query, head);
  const float of_sum = is_row ? *lse : -INFINITY;
  const float of_part = is_row ? *row_at<const float>(p.part_lse, batch, query, head) : -INFINITY;
  const MergeWeights weights(
      of_sum, of_part, [](float x) { return expf(x); }, [](float x) { return logf(x); });
  __syncwarp();  // all lanes have read lse
  if (!is_row) return;
  if (lane == 0) *lse = weights.lse;
  float* const sum = row_at<float>(p.sum, batch, query, head);
  const T* const part = row_at<const T>(p.part, batch, query, head);
  if (is_packed(sum) && is_packed(part) && p.head_size % 4 == 0) {
    for (int c = 4 * lane; c < p.head_size; c += 4 * kLanes) {
      merge_neighbours<4>(sum + c, part + c, weights);
    }
  } else {
    for (int c = lane; c < p.head_size; c += kLanes) {
      merge_neighbours<1>(sum + c, part + c, weights);
    }
  }
}

HeadView rows_of(const View& view) {
  return {view.data, view.stride(0), view.stride(1), view.stride(2)};
}
// Returns a HeadView of an lse tensor [B, H, T].
HeadView lse_of(const View& view) {
  return {view.data, view.stride(0), view.stride(2), view.stride(1)};
}

}  // namespace

template <>
void run(const Exec& exec, const AttentionMergeArgs& a) {
  if (a.sum.numel() == 0) return;
  MergeParams p;
  p.rows = a.sum.size(0) * a.sum.size(1) * a.sum.size(2), p.queries = a.sum.size(1);
  p.heads = static_cast<int>(a.sum.size(2)), p.head_size = static_cast<int>(a.sum.size(3));
  p.sum = rows_of(a.sum), p.part = rows_of(a.part);
  p.lse = lse_of(a.lse), p.part_lse = lse_of(a.part_lse);
  dispatch_float(a.part.dtype, [&]<typename T>() {
    simt::launch(attention_merge_kernel<T>,
                 {.grid = ceil_div(p.rows * kLanes, kThreads), .block = kThreads}, exec, p);
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
