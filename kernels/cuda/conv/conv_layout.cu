#include "shale/kernels/cuda/conv/conv_layout.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/simt/simt.h"

// Copies of weights between the layout of checkpoints and that of the matmuls. A thread owns an
// element of the output.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

int64_t blocks_of(int64_t elements) {
  return ceil_div(elements, int64_t{kThreads});
}

// The thread's index in the grid.
__device__ __forceinline__ int64_t thread_number() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// Sizes of weights [outs, ins, taps], and of the padded axis that is last in packed weights.
struct WeightShape {
  int64_t outs, ins, taps, channels;
};

WeightShape shape_of(const View& weight, int64_t channels) {
  return {weight.size(0), weight.size(1), weight.size(2) * weight.size(3), channels};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    pack_weights_kernel(WeightShape s, bool by_out, const T* weight, T* packed, int64_t count) {
  await_previous_grid();
  const int64_t i = thread_number();
  if (i >= count) return;
  const int64_t last = i % s.channels, tap = i / s.channels % s.taps;
  const int64_t first = i / (s.channels * s.taps);
  const int64_t out = by_out ? first : last, in = by_out ? last : first;
  const bool inside = last < (by_out ? s.ins : s.outs);
  packed[i] = inside ? weight[(out * s.ins + in) * s.taps + tap] : from_float<T>(0.f);
}

__global__ void __launch_bounds__(kThreads)
    add_weight_parts_kernel(WeightShape s, const float* parts, int64_t splits,
                            ColumnSumTarget dweight, int64_t count) {
  await_previous_grid();
  const int64_t i = thread_number();
  if (i >= count) return;
  // Neighbouring threads read neighbouring elements.
  const int64_t in = i % s.ins, tap = i / s.ins % s.taps, out = i / (s.ins * s.taps);
  const int64_t part_size = s.outs * s.taps * s.channels;
  const float* part = parts + (out * s.taps + tap) * s.channels + in;
  float sum = *part;
  for (int64_t split = 1; split < splits; ++split) sum += part[split * part_size];
  store_column_sum(dweight, (out * s.ins + in) * s.taps + tap, sum);
}

}  // namespace

void pack_weights(const Exec& exec, const View& weight, PackedBy by, int64_t channels,
                  void* packed) {
  const bool by_out = by == PackedBy::kOut;
  const WeightShape s = shape_of(weight, channels);
  const int64_t count = (by_out ? s.outs : s.ins) * s.taps * channels;
  dispatch_float(weight.dtype, [&]<typename T>() {
    simt::launch(pack_weights_kernel<T>, {.grid = blocks_of(count), .block = kThreads}, exec, s,
                 by_out, weight.as<T>(), static_cast<T*>(packed), count);
  });
}

void add_weight_parts(const Exec& exec, const float* parts, int64_t splits, int64_t channels,
                      const View& dweight, bool accumulate) {
  const int64_t count = dweight.numel();
  simt::launch(add_weight_parts_kernel, {.grid = blocks_of(count), .block = kThreads}, exec,
               shape_of(dweight, channels), parts, splits, column_sum_target(dweight, accumulate),
               count);
}

}  // namespace shale::kernels::SHALE_BACKEND
