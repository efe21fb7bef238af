#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/math-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/elementwise.h"

// In elementwise kernels a thread owns a range of elements. Operands of one dtype are processed
// directly. Operands of mixed dtypes are converted through a block of f32 that stays in the L1
// cache, which avoids one loop per combination of dtypes.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kElementGrain = 16384;
inline constexpr int64_t kStage = 1024;  // elements per converted block

// Computes y[i] = op(a[i], b[i]) with operands of any dtype; in f32, rounded once.
template <typename A, typename B, typename Y, class Op>
HWY_INLINE void map2(const A* a, const B* b, Y* y, int64_t n, const Op& op) {
  for_vectors(n, [&](int64_t i, auto part)
                     HWY_ATTR { store(op(load(a + i, part), load(b + i, part)), y + i, part); });
}

template <typename A, typename Y, class Op>
HWY_INLINE void map1(const A* a, Y* y, int64_t n, const Op& op) {
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR { store(op(load(a + i, part)), y + i, part); });
}

// Returns elements [begin, begin + n) of `from` in f32, in place or converted into `stage`.
const float* widen(const View& from, int64_t begin, int64_t n, float* stage) {
  if (from.dtype == DType::kF32) return from.as<float>() + begin;
  dispatch_float(from.dtype, [&]<typename T>() {
    map1(from.as<T>() + begin, stage, n, [](F32Vec v) HWY_ATTR { return v; });
  });
  return stage;
}

// Applies op to operands of different dtypes.
template <class Op>
void map2_staged(const Exec& exec, const View& a, const View& b, const View& y, const Op& op) {
  parallel_for(exec, y.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    HWY_ALIGN float left[kStage], right[kStage];
    for (int64_t at = begin; at < end; at += kStage) {
      const int64_t n = std::min(kStage, end - at);
      const float *from_a = widen(a, at, n, left), *from_b = widen(b, at, n, right);
      dispatch_float(y.dtype, [&]<typename T>() { map2(from_a, from_b, y.as<T>() + at, n, op); });
    }
  });
}

template <class Op>
void map2_views(const Exec& exec, const View& a, const View& b, const View& y, const Op& op) {
  if (a.dtype != y.dtype || b.dtype != y.dtype) return map2_staged(exec, a, b, y, op);
  dispatch_float(y.dtype, [&]<typename T>() {
    const T *left = a.as<T>(), *right = b.as<T>();
    T* out = y.as<T>();
    parallel_for(exec, y.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
      map2(left + begin, right + begin, out + begin, end - begin, op);
    });
  });
}

template <class Op>
void map1_views(const Exec& exec, const View& a, const View& y, const Op& op) {
  dispatch_float(a.dtype, [&]<typename A>() {
    dispatch_float(y.dtype, [&]<typename Y>() {
      const A* in = a.as<A>();
      Y* out = y.as<Y>();
      parallel_for(exec, y.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
        map1(in + begin, out + begin, end - begin, op);
      });
    });
  });
}

// ---- Slots ----

void axpby_target(const Exec& exec, const AxpbyArgs& args) {
  const auto alpha = args.alpha, beta = args.beta;
  if (!args.b.defined()) {
    map1_views(exec, args.a, args.y,
               [alpha](F32Vec a) HWY_ATTR { return hn::Mul(hn::Set(F32Tag(), alpha), a); });
    return;
  }
  map2_views(exec, args.a, args.b, args.y, [alpha, beta](F32Vec a, F32Vec b) HWY_ATTR {
    const F32Tag d;
    return hn::MulAdd(hn::Set(d, alpha), a, hn::Mul(hn::Set(d, beta), b));
  });
}

void mul_target(const Exec& exec, const MulArgs& args) {
  map2_views(exec, args.a, args.b, args.y,
             [](F32Vec a, F32Vec b) HWY_ATTR { return hn::Mul(a, b); });
}

template <typename T, class Op>
void gelu_fwd_typed(const Exec& exec, const GeluFwdArgs& a, const Op& op) {
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  parallel_for(exec, a.x.numel(), kElementGrain,
               [&](int64_t begin, int64_t end) { map1(x + begin, y + begin, end - begin, op); });
}

void gelu_fwd_target(const Exec& exec, const GeluFwdArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    if (a.exact) {
      gelu_fwd_typed<T>(exec, a, [](F32Vec x) HWY_ATTR { return gelu_erf(F32Tag(), x); });
    } else {
      gelu_fwd_typed<T>(exec, a, [](F32Vec x) HWY_ATTR { return gelu_tanh(F32Tag(), x); });
    }
  });
}

template <typename T, class Op>
void gelu_bwd_typed(const Exec& exec, const GeluBwdArgs& a, const Op& slope) {
  const T *x = a.x.as<T>(), *dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  parallel_for(exec, a.x.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    map2(x + begin, dy + begin, dx + begin, end - begin,
         [&](F32Vec at, F32Vec gradient) HWY_ATTR { return hn::Mul(gradient, slope(at)); });
  });
}

void gelu_bwd_target(const Exec& exec, const GeluBwdArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    if (a.exact) {
      gelu_bwd_typed<T>(exec, a, [](F32Vec x) HWY_ATTR { return dgelu_erf(F32Tag(), x); });
    } else {
      gelu_bwd_typed<T>(exec, a, [](F32Vec x) HWY_ATTR { return dgelu_tanh(F32Tag(), x); });
    }
  });
}

void swiglu_fwd_target(const Exec& exec, const SwiGluFwdArgs& a) {
  map2_views(exec, a.gate, a.up, a.y,
             [](F32Vec gate, F32Vec up) HWY_ATTR { return hn::Mul(silu(F32Tag(), gate), up); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(axpby_target);
HWY_EXPORT(mul_target);
HWY_EXPORT(gelu_fwd_target);
HWY_EXPORT(gelu_bwd_target);
HWY_EXPORT(swiglu_fwd_target);

template <>
void cpu::run(const Exec& exec, const AxpbyArgs& a) {
  HWY_DYNAMIC_DISPATCH(axpby_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const MulArgs& a) {
  if (a.b.numel() == 1) {  // b is a single factor for all elements of a
    float factor = 0;
    dispatch_float(a.b.dtype, [&]<typename T>() { factor = to_f32(*a.b.as<T>()); });
    run(exec, AxpbyArgs{.a = a.a, .y = a.y, .alpha = factor});
    return;
  }
  HWY_DYNAMIC_DISPATCH(mul_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const GeluFwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(gelu_fwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const GeluBwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(gelu_bwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const SwiGluFwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(swiglu_fwd_target)(exec, a);
}

}  // namespace shale::kernels
#endif
