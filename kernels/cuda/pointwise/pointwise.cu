#include "shale/kernels/pointwise.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/pointwise/operands.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Interprets pointwise programs. A thread owns four neighbouring elements, for which it runs the
// whole program; a block owns kThreads times as many. All threads of the grid take the same branch
// at each step. The program's registers are in shared memory, a column per thread, because hardware
// registers cannot be indexed. No other thread accesses the column, so there are no barriers. Every
// input is read once, every output written once.

namespace shale::kernels::SHALE_BACKEND {
namespace {

#include "shale/kernels/cuda/pointwise/four.cuh"
#include "shale/kernels/pointwise_functions-inl.h"

constexpr int kThreads = 128;

struct Interpreted {
  PointwiseOperands operands;
  int count;
  PointwiseStep steps[kMaxPointwiseSteps];
};

// Calls fn.template operator()<T>() for the type T of a dtype; all threads take the same branch.
template <class Fn>
__device__ __forceinline__ void dispatch_elements(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kBF16: return fn.template operator()<bf16>();
    case DType::kF16: return fn.template operator()<f16>();
    case DType::kU8: return fn.template operator()<uint8_t>();
    default: return fn.template operator()<float>();
  }
}

__device__ __forceinline__ Four rounded_to(DType dtype, Four x) {
  if (dtype == DType::kBF16) return rounded<bf16>(x);
  if (dtype == DType::kF16) return rounded<f16>(x);
  return x;
}

using FourPack = Pack<float, 4>;

__device__ __forceinline__ Four load_register(const float* column, int number) {
  const FourPack pack = load_pack<4>(column + number * kThreads * 4);
  return {{pack.at[0], pack.at[1], pack.at[2], pack.at[3]}};
}
__device__ __forceinline__ void store_register(float* column, int number, Four x) {
  store_shared_pack(column + number * kThreads * 4, FourPack{{x.at[0], x.at[1], x.at[2], x.at[3]}});
}

__global__ void __launch_bounds__(kThreads)
    pointwise_kernel(const __grid_constant__ Interpreted program) {
  await_previous_grid();
  const int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * 4;
  const int64_t left = program.operands.n - i;
  if (left <= 0) return;
  const int count = left < 4 ? static_cast<int>(left) : 4;
  float* column = dynamic_shared<float>() + threadIdx.x * 4;
  for (int s = 0; s < program.count; ++s) {
    const PointwiseStep& step = program.steps[s];
    Four y;
    if (step.op == PointwiseOp::kStore) {
      const Four x = load_register(column, step.a);
      dispatch_elements(program.operands.outputs[step.operand].dtype, [&]<typename T>() {
        store_four<T>(program.operands, step.operand, i, count, x.at);
      });
      continue;
    }
    if (step.op == PointwiseOp::kLoad) {
      dispatch_elements(program.operands.inputs[step.operand].dtype, [&]<typename T>() {
        load_four<T>(program.operands, step.operand, i, count, y.at);
      });
    } else if (step.op == PointwiseOp::kConstant) {
      y = like(Four{}, step.value);
    } else {
      y = rounded_to(step.dtype,
                     apply(step.op, load_register(column, step.a), load_register(column, step.b),
                           load_register(column, step.c)));
    }
    store_register(column, step.to, y);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const PointwiseArgs& args) {
  Interpreted program{
      .operands = pointwise_operands(args), .count = args.program->count, .steps = {}};
  if (program.operands.n == 0) return;
  for (int s = 0; s < program.count; ++s) program.steps[s] = args.program->steps[size_t(s)];
  const auto bytes = sizeof(Four) * kThreads * size_t(args.program->registers);
  simt::launch(pointwise_kernel,
               {.grid = ceil_div(program.operands.n, int64_t{4} * kThreads),
                .block = kThreads,
                .smem_bytes = bytes},
               exec, program);
}

}  // namespace shale::kernels::SHALE_BACKEND
