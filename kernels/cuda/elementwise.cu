#include "kernels/elementwise.h"

#include "kernels/cpu/check.h"
#include "kernels/cuda/gpu_kernels.h"
#include "kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

// A thread owns one pack's worth of elements, neighbours of each other: full packs go through
// vector loads where all pointers allow it, the ragged tail element by element.
template <typename A, typename B, typename Y>
__global__ void __launch_bounds__(kThreads)
    axpby_kernel(const A* a, const B* b, Y* y, int64_t n, float alpha, float beta) {
  constexpr int kElements = kPackSize<Y>;
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kElements;
  const auto value = [&](float left, float right) { return fmaf(alpha, left, beta * right); };
  constexpr bool kOneSize = sizeof(A) == sizeof(Y) && sizeof(B) == sizeof(Y);
  if constexpr (kOneSize) {
    const bool packed = is_packed(a) && is_packed(y) && (b == nullptr || is_packed(b));
    if (packed && begin + kElements <= n) {
      const Floats<A> left = load_floats(a + begin);
      Floats<Y> result;
      if (b != nullptr) {
        const Floats<B> right = load_floats(b + begin);
#pragma unroll
        for (int i = 0; i < kElements; ++i) result.at[i] = value(left.at[i], right.at[i]);
      } else {
#pragma unroll
        for (int i = 0; i < kElements; ++i) result.at[i] = alpha * left.at[i];
      }
      store_floats(y + begin, result);
      return;
    }
  }
  for (int64_t i = begin; i < begin + kElements && i < n; ++i) {
    const float left = to_float(a[i]);
    y[i] = from_float<Y>(b != nullptr ? value(left, to_float(b[i])) : alpha * left);
  }
}

void check_operand(const char* arg, const View& view, int64_t elements) {
  check_dtype("axpby", arg, view, kComputeDTypes);
  check_contiguous("axpby", arg, view);
  if (view.numel() == elements) return;
  throw ShapeError(cat("axpby: ", arg, " is ", view, ", want ", elements, " elements"));
}

template <typename A, typename B, typename Y>
void launch_axpby(const Exec& exec, const AxpbyArgs& args) {
  const int64_t n = args.y.numel();
  simt::launch(axpby_kernel<A, B, Y>,
               {.grid = ceil_div(n, int64_t{kThreads} * kPackSize<Y>), .block = kThreads}, exec,
               args.a.as<A>(), args.b.defined() ? args.b.as<B>() : nullptr, args.y.as<Y>(), n,
               args.alpha, args.beta);
}

}  // namespace

void axpby(const Exec& exec, const AxpbyArgs& args) {
  check_operand("y", args.y, args.y.numel());
  check_operand("a", args.a, args.y.numel());
  if (args.b.defined()) check_operand("b", args.b, args.y.numel());
  if (args.y.numel() == 0) return;
  dispatch_float(args.y.dtype, [&]<typename Y>() {
    dispatch_float(args.a.dtype, [&]<typename A>() {
      dispatch_float(args.b.defined() ? args.b.dtype : args.a.dtype,
                     [&]<typename B>() { launch_axpby<A, B, Y>(exec, args); });
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
