#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/zero_one_adam.cpp"
#include <hwy/foreach_target.h>
//
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/adamw-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/zero_one_adam.h"

// A block of kWeightBlock elements at a time, whose weight and rates are read before its elements
// and written after them. Bound by memory.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

static_assert(kWeightBlock % kF32Lanes == 0 && kOptimGrain % kWeightBlock == 0);

template <typename Grad, typename Param>
struct ZeroOneSpan {
  OptimSpanView<Grad, Param> weights;
  float *m, *v, *v_weight, *anchor, *sum, *rates;

  explicit ZeroOneSpan(const ZeroOneAdamArgs& a)
      : weights(a),
        m(a.m.as<float>()),
        v(a.v.as<float>()),
        v_weight(a.v_weight.as<float>()),
        anchor(a.step == ZeroOneStep::kShared ? nullptr : a.anchor.as<float>()),
        sum(a.step == ZeroOneStep::kShared ? nullptr : a.sum.as<float>()),
        rates(a.step == ZeroOneStep::kShared ? nullptr : a.rates.as<float>()) {}
};

struct ZeroOneFactors {
  float grad, beta1, gamma1, beta2, gamma2, correction1, inv1, eps, lr, lr_factor, weight_decay;
  bool updates_v;

  ZeroOneFactors(const StepState& step, const ZeroOneAdamArgs& a)
      : grad(a.grad_factor * (a.clips ? step.clip_factor : 1.f)),
        beta1(a.beta1),
        gamma1(1.f - a.beta1),
        beta2(a.beta2),
        gamma2(1.f - a.beta2),
        correction1(step.bias_correction1),
        inv1(1.f / step.bias_correction1),
        eps(a.eps),
        lr(step.lr),
        lr_factor(a.lr_factor),
        weight_decay(a.weight_decay),
        updates_v(a.updates_v) {}
};

// a(u) of the header.
struct ZeroOneStepOf {
  F32Vec inv2, eps, lr_factor;

  HWY_INLINE ZeroOneStepOf(const ZeroOneFactors& f, float v_weight)
      : inv2(hn::Set(F32Tag(), v_weight > 0 ? 1.f / v_weight : 0.f)),
        eps(hn::Set(F32Tag(), f.eps)),
        lr_factor(hn::Set(F32Tag(), f.lr_factor)) {}
  HWY_INLINE F32Vec operator()(F32Vec u, F32Vec v) const {
    const auto step = hn::Div(hn::Mul(lr_factor, u), hn::Add(hn::Sqrt(hn::Mul(v, inv2)), eps));
    return hn::IfThenElseZero(hn::Ne(v, hn::Zero(F32Tag())), step);
  }
};

// Of `count` elements from `begin` on, which are one block.
template <typename Grad, typename Param>
HWY_INLINE void shared_block(const ZeroOneFactors& f, const ZeroOneSpan<Grad, Param>& span,
                             int64_t begin, int64_t count) {
  const F32Tag d;
  const auto factor = hn::Set(d, f.grad), beta1 = hn::Set(d, f.beta1),
             gamma1 = hn::Set(d, f.gamma1);
  const auto beta2 = hn::Set(d, f.beta2), gamma2 = hn::Set(d, f.gamma2);
  const auto rate = hn::Set(d, f.lr * f.inv1);
  const auto kept = hn::Set(d, f.lr * f.lr_factor * f.weight_decay);
  float& weight = span.v_weight[begin / kWeightBlock];
  if (f.updates_v) weight = f.beta2 * weight + f.gamma2;
  const ZeroOneStepOf step(f, weight);
  for_vectors(count, [&](int64_t k, auto part) HWY_ATTR {
    const int64_t i = begin + k;
    const auto g = hn::Mul(factor, load(span.weights.grad + i, part));
    const auto m = hn::MulAdd(beta1, load(span.m + i, part), hn::Mul(gamma1, g));
    auto v = load(span.v + i, part);
    if (f.updates_v) {
      v = hn::MulAdd(beta2, v, hn::Mul(gamma2, hn::Mul(g, g)));
      store(v, span.v + i, part);
    }
    store(m, span.m + i, part);
    const auto w = load(span.weights.master + i, part);
    const auto decayed = hn::NegMulAdd(kept, w, w);
    store_weights(hn::Sub(decayed, step(hn::Mul(rate, m), v)), span.weights, i, part);
  });
}

template <typename Grad, typename Param>
HWY_INLINE void local_block(const ZeroOneFactors& f, const ZeroOneSpan<Grad, Param>& span,
                            int64_t begin, int64_t count) {
  const F32Tag d;
  const auto factor = hn::Set(d, f.grad), beta1 = hn::Set(d, f.beta1),
             gamma1 = hn::Set(d, f.gamma1);
  const auto rate = hn::Set(d, f.lr * f.inv1);
  const auto kept = hn::Set(d, f.lr * f.lr_factor * f.weight_decay);
  const int64_t block = begin / kWeightBlock;
  const ZeroOneStepOf step(f, span.v_weight[block]);
  for_vectors(count, [&](int64_t k, auto part) HWY_ATTR {
    const int64_t i = begin + k;
    const auto g = hn::Mul(factor, load(span.weights.grad + i, part));
    const auto v = load(span.v + i, part);
    const auto mixed = hn::MulAdd(beta1, load(span.m + i, part), hn::Mul(gamma1, g));
    const auto m = hn::IfThenElseZero(hn::Ne(v, hn::Zero(d)), mixed);
    const auto sum = hn::MulAdd(rate, m, load(span.sum + i, part));
    const auto before = load(span.anchor + i, part);
    const auto anchor = hn::NegMulAdd(kept, before, before);
    store(m, span.m + i, part);
    store(sum, span.sum + i, part);
    store(anchor, span.anchor + i, part);
    store_weights(hn::Sub(anchor, step(sum, v)), span.weights, i, part);
  });
  span.rates[block] += f.lr;
}

template <typename Grad, typename Param>
HWY_INLINE void join_block(const ZeroOneFactors& f, const ZeroOneSpan<Grad, Param>& span,
                           int64_t begin, int64_t count) {
  const F32Tag d;
  const int64_t block = begin / kWeightBlock;
  const float rates = span.rates[block];
  const ZeroOneStepOf step(f, span.v_weight[block]);
  const auto of_sum = hn::Set(d, rates > 0 ? f.correction1 / rates : 0.f);
  for_vectors(count, [&](int64_t k, auto part) HWY_ATTR {
    const int64_t i = begin + k;
    auto anchor = load(span.anchor + i, part);
    if (rates > 0) {
      const auto sum = load(span.sum + i, part);
      anchor = hn::Sub(anchor, step(sum, load(span.v + i, part)));
      store(hn::Mul(of_sum, sum), span.m + i, part);
      store(hn::Zero(d), span.sum + i, part);
      store(anchor, span.anchor + i, part);
    }
    store_weights(anchor, span.weights, i, part);
  });
  span.rates[block] = 0;
}

template <typename Grad, typename Param>
HWY_INLINE void place_block(const ZeroOneFactors& f, const ZeroOneSpan<Grad, Param>& span,
                            int64_t begin, int64_t count) {
  const ZeroOneStepOf step(f, span.v_weight[begin / kWeightBlock]);
  for_vectors(count, [&](int64_t k, auto part) HWY_ATTR {
    const int64_t i = begin + k;
    const auto u = step(load(span.sum + i, part), load(span.v + i, part));
    store_weights(hn::Sub(load(span.anchor + i, part), u), span.weights, i, part);
  });
}

template <typename Grad, typename Param>
void zero_one_adam_typed(const Exec& exec, const ZeroOneAdamArgs& a) {
  const ZeroOneFactors f(*exec.step, a);
  const ZeroOneSpan<Grad, Param> span(a);
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t i = begin; i < end; i += kWeightBlock) {
      const int64_t count = end - i < kWeightBlock ? end - i : kWeightBlock;
      switch (a.step) {
        case ZeroOneStep::kShared: shared_block(f, span, i, count); break;
        case ZeroOneStep::kLocal: local_block(f, span, i, count); break;
        case ZeroOneStep::kJoin: join_block(f, span, i, count); break;
        case ZeroOneStep::kPlace: place_block(f, span, i, count); break;
      }
    }
  });
}

void zero_one_adam_target(const Exec& exec, const ZeroOneAdamArgs& a) {
  ZeroOneAdamArgs given = a;
  if (!given.grad.defined()) given.grad = given.master;  // which is not looked at
  dispatch_optim(given.grad, given.param, [&]<typename Grad, typename Param>() {
    zero_one_adam_typed<Grad, Param>(exec, given);
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(zero_one_adam_target);

template <>
void cpu::run(const Exec& exec, const ZeroOneAdamArgs& a) {
  const StepState& step = step_of("zero_one_adam", exec);
  if (step.non_finite != 0 && a.step != ZeroOneStep::kPlace) return;
  HWY_DYNAMIC_DISPATCH(zero_one_adam_target)(exec, a);
}

}  // namespace shale::kernels
#endif
