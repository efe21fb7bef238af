#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/math-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/softmax.h"

// Softmax. A thread owns whole rows, which stay in cache between passes.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kSoftmaxGrain = 8192;  // elements per chunk of work

// Returns the maximum of a row. It may ignore a NaN, because the sum of exponentials does not.
template <typename T>
float max_of_row(const T* x, int64_t n) {
  const F32Tag d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto top = lowest;
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto values = load(x + i, part);
    if constexpr (std::is_same_v<decltype(part), Part>) {
      const auto valid = hn::FirstN(d, static_cast<size_t>(part.count));
      top = hn::Max(top, hn::IfThenElse(valid, values, lowest));
    } else {
      top = hn::Max(top, values);
    }
  });
  return max_lanes(d, top);
}

template <typename T>
float sum_of_exp(const T* x, int64_t n, float max) {
  TurnSum sum;
  for_vectors_in_turns(n, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    const auto shifted = hn::Sub(load(x + i, part), hn::Set(F32Tag(), max));
    sum.add(inside(exp_f32(F32Tag(), shifted), part), turn);
  });
  return sum.total();
}

template <typename T>
void softmax_row(const T* x, T* y, int64_t n, bool log) {
  const F32Tag d;
  const float max = max_of_row(x, n), sum = sum_of_exp(x, n, max);
  const auto top = hn::Set(d, max);
  if (log) {
    const auto log_sum = hn::Set(d, std::log(sum));
    for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Sub(hn::Sub(load(x + i, part), top), log_sum), y + i, part);
    });
    return;
  }
  const auto factor = hn::Set(d, 1.f / sum);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto e = exp_f32(F32Tag(), hn::Sub(load(x + i, part), top));
    store(hn::Mul(e, factor), y + i, part);
  });
}

template <typename T>
void softmax_bwd_row(const T* y, const T* dy, T* dx, int64_t n, bool log) {
  const F32Tag d;
  TurnSum sum;
  for_vectors_in_turns(n, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    const auto grad = load(dy + i, part);
    sum.add(inside(log ? grad : hn::Mul(grad, load(y + i, part)), part), turn);
  });
  const auto total = hn::Set(d, sum.total());
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto grad = load(dy + i, part), value = load(y + i, part);
    const auto of_log = hn::Sub(grad, hn::Mul(exp_f32(F32Tag(), value), total));
    store(log ? of_log : hn::Mul(value, hn::Sub(grad, total)), dx + i, part);
  });
}

int64_t rows_at_once(int64_t cols) {
  return std::max<int64_t>(1, kSoftmaxGrain / std::max<int64_t>(1, cols));
}

void softmax_fwd_target(const Exec& exec, const SoftmaxFwdArgs& a) {
  const int64_t cols = a.x.size(1);
  dispatch_float(a.x.dtype, [&]<typename T>() {
    const T* x = a.x.as<T>();
    T* y = a.y.as<T>();
    parallel_for(exec, a.x.size(0), rows_at_once(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) softmax_row(x + r * cols, y + r * cols, cols, a.log);
    });
  });
}

void softmax_bwd_target(const Exec& exec, const SoftmaxBwdArgs& a) {
  const int64_t cols = a.y.size(1);
  dispatch_float(a.y.dtype, [&]<typename T>() {
    const T *y = a.y.as<T>(), *dy = a.dy.as<T>();
    T* dx = a.dx.as<T>();
    parallel_for(exec, a.y.size(0), rows_at_once(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        softmax_bwd_row(y + r * cols, dy + r * cols, dx + r * cols, cols, a.log);
      }
    });
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(softmax_fwd_target);
HWY_EXPORT(softmax_bwd_target);

template <>
void cpu::run(const Exec& exec, const SoftmaxFwdArgs& a) {
  if (a.x.numel() > 0) HWY_DYNAMIC_DISPATCH(softmax_fwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const SoftmaxBwdArgs& a) {
  if (a.y.numel() > 0) HWY_DYNAMIC_DISPATCH(softmax_bwd_target)(exec, a);
}

}  // namespace shale::kernels
#endif
