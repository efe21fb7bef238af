#pragma once

#include "shale/kernels/cuda/elementwise/operand.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Elementwise kernels. An operation is a struct of operands (see operand.cuh) and numbers with
//
//   kCount             number of elements processed together: 16 bytes of the widest operand
//   packed()           whether all operands allow that (host)
//   load<n>(i)         reads elements [i, i + n) of the inputs into registers
//   store<n>(i, in)    computes from them, and writes elements [i, i + n) of the outputs
//   prefetch(b, e)     optional: prefetches elements [b, e) of the inputs with
//                      prefetch_run(), in blocks that start before the previous grid has ended
//
// All loads of a thread are issued before its first store, which may alias them.
inline constexpr int kMapThreads = 256;
inline constexpr int kMapPacks = 2;  // packs per thread; one would leave too few bytes in flight
// Only this number of blocks prefetch: about as many as start before the previous grid has ended.
// Later blocks do not wait for it.
inline constexpr unsigned kEarlyBlocks = 512;

// The elementwise kernel. A block owns kMapThreads * kMapPacks neighbouring packs; the packs of a
// thread are kMapThreads apart. Ragged or unaligned parts are processed element by element, with
// the same instructions.
template <class Operation>
__global__ void __launch_bounds__(kMapThreads, 4)
    map_kernel(Operation operation, int64_t n, bool packed) {
  constexpr int kCount = Operation::kCount;
  constexpr int64_t kBlock = int64_t{kMapThreads} * kMapPacks * kCount;
  const int64_t begin = blockIdx.x * kBlock, end = begin + kBlock < n ? begin + kBlock : n;
  if constexpr (requires { operation.prefetch(begin, end); }) {
    if (blockIdx.x < kEarlyBlocks) operation.prefetch(begin, end);
  }
  await_previous_grid();
  if (packed && end == begin + kBlock) {
    const int64_t first = begin + int64_t{threadIdx.x} * kCount;
    constexpr int64_t kStride = int64_t{kMapThreads} * kCount;
    using Inputs = decltype(operation.template load<kCount>(first));
    Inputs inputs[kMapPacks];
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) {
      inputs[k] = operation.template load<kCount>(first + k * kStride);
    }
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) {
      operation.template store<kCount>(first + k * kStride, inputs[k]);
    }
    return;
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kMapThreads) {
    operation.template store<1>(i, operation.template load<1>(i));
  }
}

template <class Operation>
void map(const Exec& exec, const Operation& operation, int64_t n) {
  if (n == 0) return;  // CUDA rejects an empty grid
  constexpr int64_t kBlock = int64_t{kMapThreads} * kMapPacks * Operation::kCount;
  simt::launch(map_kernel<Operation>, {.grid = ceil_div(n, kBlock), .block = kMapThreads}, exec,
               operation, n, operation.packed());
}

}  // namespace shale::kernels::SHALE_BACKEND
