#pragma once

#include "shale/kernels/simt/shared.h"
#include "shale/kernels/simt/warp.h"

namespace shale::kernels::SHALE_BACKEND::simt {

// Reductions in a fixed order: a butterfly over the lanes of a warp, then the warps in ascending
// order. Every thread gets the same bits. T is float, double or an integer; the maximum of floats
// ignores NaN.
struct Add {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// Reduces over each group of kLanes neighbouring lanes; kLanes is a power of two.
template <int kLanes = kWarpSize, typename T, class Op>
__device__ __forceinline__ T warp_reduce(T value, const Op& op) {
#pragma unroll
  for (int bits = kLanes / 2; bits > 0; bits /= 2) value = op(value, shfl_xor(value, bits));
  return value;
}
template <int kLanes = kWarpSize, typename T>
__device__ __forceinline__ T warp_sum(T value) {
  return warp_reduce<kLanes>(value, Add());
}
template <int kLanes = kWarpSize, typename T>
__device__ __forceinline__ T warp_max(T value) {
  return warp_reduce<kLanes>(value, Max());
}

template <typename T>
struct BlockReduceSlots {
  T of_warp[kWarpSize];
};

// Reduces over a one-dimensional block of whole warps. All threads must call it; it calls
// __syncthreads twice.
template <typename T, class Op>
__device__ __forceinline__ T block_reduce(T value, const Op& op) {
  BlockReduceSlots<T>& slots = shared<BlockReduceSlots<T>>();
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int warps = blockDim.x / kWarpSize;
  value = warp_reduce(value, op);
  __syncthreads();  // waits until all have read the slots of an earlier call
  if (lane == 0) slots.of_warp[warp] = value;
  __syncthreads();
  // Adds in warp order; the number of warps need not be a power of two. All lanes read one slot at
  // a time.
  T total = slots.of_warp[0];
  for (int i = 1; i < warps; ++i) total = op(total, slots.of_warp[i]);
  return total;
}
template <typename T>
__device__ __forceinline__ T block_sum(T value) {
  return block_reduce(value, Add());
}
template <typename T>
__device__ __forceinline__ T block_max(T value) {
  return block_reduce(value, Max());
}

}  // namespace shale::kernels::SHALE_BACKEND::simt
