// An AdamW step on SIMD vectors of f32, for any storage of the moments, and helpers of all
// optimizers.
#if defined(SHALE_KERNELS_CPU_ADAMW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_ADAMW_INL_H_
#undef SHALE_KERNELS_CPU_ADAMW_INL_H_
#else
#define SHALE_KERNELS_CPU_ADAMW_INL_H_
#endif

#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/optim_internal.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Prefetch distance in elements. Division and square root fill the core's out-of-order window, so
// its own loads do not run far enough ahead to hide memory latency: AdamW is 10% slower without
// prefetch, 20% with bf16 moments. A prefetch past the end of a buffer is harmless.
inline constexpr int64_t kPrefetchAhead = 512;

template <typename Grad, typename Param, typename... State>
HWY_INLINE void prefetch_ahead(const OptimSpanView<Grad, Param>& span, int64_t i,
                               const State*... states) {
  __builtin_prefetch(span.master + i + kPrefetchAhead);
  __builtin_prefetch(span.grad + i + kPrefetchAhead);
  (__builtin_prefetch(states + i + kPrefetchAhead), ...);
  if (span.param != nullptr) __builtin_prefetch(span.param + i + kPrefetchAhead, 1);
}

// Stores weights to element i of the span, and to its 16-bit copy if there is one.
template <typename Grad, typename Param, class Part>
HWY_INLINE void store_weights(F32Vec w, const OptimSpanView<Grad, Param>& span, int64_t i,
                              Part part) {
  store(w, span.master + i, part);
  if (span.param != nullptr) store(w, span.param + i, part);
}

struct AdamWStep {
  F32Vec clip, beta1, gamma1, beta2, gamma2, inv1, inv2, eps, lr, decay;

  HWY_INLINE explicit AdamWStep(const AdamWFactors& f)
      : clip(hn::Set(F32Tag(), f.clip)),
        beta1(hn::Set(F32Tag(), f.beta1)),
        gamma1(hn::Set(F32Tag(), f.one_minus_beta1)),
        beta2(hn::Set(F32Tag(), f.beta2)),
        gamma2(hn::Set(F32Tag(), f.one_minus_beta2)),
        inv1(hn::Set(F32Tag(), f.inv_correction1)),
        inv2(hn::Set(F32Tag(), f.inv_correction2)),
        eps(hn::Set(F32Tag(), f.eps)),
        lr(hn::Set(F32Tag(), f.lr)),
        decay(hn::Set(F32Tag(), f.weight_decay)) {}

  // Updates the moments m and v of a vector of weights w and returns the new weights.
  HWY_INLINE F32Vec operator()(F32Vec w, F32Vec grad, F32Vec& m, F32Vec& v) const {
    const auto g = hn::Mul(clip, grad);
    m = hn::MulAdd(beta1, m, hn::Mul(gamma1, g));
    v = hn::MulAdd(beta2, v, hn::Mul(gamma2, hn::Mul(g, g)));
    const auto denominator = hn::Add(hn::Sqrt(hn::Mul(v, inv2)), eps);
    const auto adam = hn::Div(hn::Mul(m, inv1), denominator);
    return hn::NegMulAdd(lr, hn::MulAdd(decay, w, adam), w);
  }
  // Updates moments in memory and returns the new weights.
  template <typename Moment, class Part>
  HWY_INLINE F32Vec operator()(F32Vec w, F32Vec grad, Moment* m, Moment* v, Part part) const {
    auto new_m = load(m, part), new_v = load(v, part);
    const auto new_w = (*this)(w, grad, new_m, new_v);
    store(new_m, m, part);
    store(new_v, v, part);
    return new_w;
  }
};

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
