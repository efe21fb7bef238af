#include "shale/kernels/reduce_dims.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// If neighbours in y are neighbours in x, a thread owns an element of y, so that a warp reads
// neighbours. Otherwise a warp or, for long sums, a block owns an element of y: its threads take
// the elements of x in turn, and a tree combines their results. Every element of x is read once.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kWarpLimit = 1024;  // longest sum that a warp adds; a block adds longer ones
constexpr int64_t kFirstSum = 1024;   // additions per partial sum in f32

struct DeviceWalk {
  int count;
  int64_t size[kMaxDims];
  int64_t stride[kMaxDims];

  explicit DeviceWalk(const Walk& walk) : count(walk.count), size{}, stride{} {
    for (int d = 0; d < count; ++d) {
      size[d] = walk.size[size_t(d)], stride[d] = walk.stride[size_t(d)];
    }
  }
  __device__ __forceinline__ int64_t offset(int64_t step) const {
    if (count == 1) return step * stride[0];
    int64_t result = 0;
#pragma unroll
    for (int d = kMaxDims - 1; d >= 0; --d) {
      if (d >= count) continue;
      const int64_t outer = d == 0 ? 0 : step / size[d];
      result += (step - outer * size[d]) * stride[d];
      step = outer;
    }
    return result;
  }
};

template <typename T, typename Y>
struct ReduceDims {
  const T* x;
  Y* y;
  int64_t outputs, each;
  DeviceWalk kept, reduced;
  float scale;
};

struct SumOp {
  static constexpr float kFirst = 0.f;
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
// Keeps a NaN: the comparison a != a is true only for NaN.
struct MaxOp {
  static constexpr float kFirst = -INFINITY;
  __device__ __forceinline__ float operator()(float a, float b) const {
    return a >= b || a != a ? a : b;
  }
};
struct MinOp {
  static constexpr float kFirst = INFINITY;
  __device__ __forceinline__ float operator()(float a, float b) const {
    return a <= b || a != a ? a : b;
  }
};

// Reduces some of the elements of x that belong to one element of y: numbers begin, begin + step,
// begin + 2 step, ... among them.
template <class Op, typename T, typename Y>
__device__ __forceinline__ float reduce_steps(const ReduceDims<T, Y>& a, const T* x, int64_t begin,
                                              int64_t step) {
  const Op op;
  float total = Op::kFirst;
  for (int64_t first = begin; first < a.each; first += step * kFirstSum) {
    const int64_t limit = first + step * kFirstSum, end = limit < a.each ? limit : a.each;
    float sum = Op::kFirst;
#pragma unroll 4
    for (int64_t i = first; i < end; i += step) sum = op(sum, to_float(x[a.reduced.offset(i)]));
    total = op(total, sum);
  }
  return total;
}

template <class Op, typename T, typename Y>
__global__ void __launch_bounds__(kThreads) reduce_thread_kernel(ReduceDims<T, Y> a) {
  await_previous_grid();
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= a.outputs) return;
  a.y[i] = from_float<Y>(a.scale * reduce_steps<Op>(a, a.x + a.kept.offset(i), 0, 1));
}

template <class Op, typename T, typename Y>
__global__ void __launch_bounds__(kThreads) reduce_warp_kernel(ReduceDims<T, Y> a) {
  await_previous_grid();
  constexpr int kWarps = kThreads / kWarpSize;
  const int64_t i = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarpSize;
  if (i >= a.outputs) return;
  const int lane = threadIdx.x % kWarpSize;
  const float total =
      warp_reduce(reduce_steps<Op>(a, a.x + a.kept.offset(i), lane, kWarpSize), Op());
  if (lane == 0) a.y[i] = from_float<Y>(a.scale * total);
}

template <class Op, typename T, typename Y>
__global__ void __launch_bounds__(kThreads) reduce_block_kernel(ReduceDims<T, Y> a) {
  await_previous_grid();
  const int64_t i = blockIdx.x;
  const int thread = threadIdx.x;
  const float total =
      block_reduce(reduce_steps<Op>(a, a.x + a.kept.offset(i), thread, kThreads), Op());
  if (thread == 0) a.y[i] = from_float<Y>(a.scale * total);
}

// A value and its index. The larger value wins; among equal values the one with the smaller index
// wins. A NaN is larger than all numbers.
struct Candidate {
  float value;
  int index;
};
__device__ __forceinline__ bool beats(const Candidate& a, const Candidate& b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.value != b.value) return a.value > b.value;
  return a.index < b.index;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) argmax_kernel(ReduceDims<T, int32_t> a) {
  await_previous_grid();
  constexpr int kWarps = kThreads / kWarpSize;
  const int64_t i = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarpSize;
  if (i >= a.outputs) return;
  const int lane = threadIdx.x % kWarpSize;
  const T* x = a.x + a.kept.offset(i);
  Candidate best{-INFINITY, INT32_MAX};
  for (int64_t k = lane; k < a.each; k += kWarpSize) {
    const Candidate next{to_float(x[a.reduced.offset(k)]), static_cast<int>(k)};
    if (beats(next, best)) best = next;
  }
#pragma unroll
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) {
    const Candidate other{shfl_xor(best.value, bits), shfl_xor(best.index, bits)};
    if (beats(other, best)) best = other;
  }
  if (lane == 0) a.y[i] = best.index;
}

// ---- Host ----

template <class Op, typename T, typename Y>
void launch_reduce(const Exec& exec, const ReducePlan& plan, const ReduceDims<T, Y>& a) {
  if (plan.along_kept()) {
    simt::launch(reduce_thread_kernel<Op, T, Y>,
                 {.grid = ceil_div(a.outputs, int64_t{kThreads}), .block = kThreads}, exec, a);
  } else if (a.each <= kWarpLimit) {
    simt::launch(reduce_warp_kernel<Op, T, Y>,
                 {.grid = ceil_div(a.outputs, int64_t{kThreads / kWarpSize}), .block = kThreads},
                 exec, a);
  } else {
    simt::launch(reduce_block_kernel<Op, T, Y>, {.grid = a.outputs, .block = kThreads}, exec, a);
  }
}

template <typename T, typename Y>
ReduceDims<T, Y> problem_of(const ReduceDimsArgs& args, const ReducePlan& plan) {
  return {.x = args.x.as<T>(),
          .y = args.y.as<Y>(),
          .outputs = args.y.numel(),
          .each = plan.reduced.steps(),
          .kept = DeviceWalk(plan.kept),
          .reduced = DeviceWalk(plan.reduced),
          .scale = args.scale};
}

template <typename T>
void argmax_typed(const Exec& exec, const ReduceDimsArgs& args) {
  const auto a = problem_of<T, int32_t>(args, ReducePlan(args));
  simt::launch(argmax_kernel<T>,
               {.grid = ceil_div(a.outputs, int64_t{kThreads / kWarpSize}), .block = kThreads},
               exec, a);
}

}  // namespace

template <>
void run(const Exec& exec, const ReduceDimsArgs& args) {
  if (args.y.numel() == 0) return;
  dispatch_float(args.x.dtype, [&]<typename T>() {
    if (args.op == ReduceOp::kArgMax) return argmax_typed<T>(exec, args);
    dispatch_float(args.y.dtype, [&]<typename Y>() {
      const ReducePlan plan(args);
      const auto a = problem_of<T, Y>(args, plan);
      switch (args.op) {
        case ReduceOp::kMax: return launch_reduce<MaxOp>(exec, plan, a);
        case ReduceOp::kMin: return launch_reduce<MinOp>(exec, plan, a);
        default: return launch_reduce<SumOp>(exec, plan, a);
      }
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
