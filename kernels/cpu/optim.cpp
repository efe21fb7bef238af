#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/optim.cpp"
#include <hwy/foreach_target.h>
//
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/adamw-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/philox-inl.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/optim.h"

// The optimizers are memory-bound: they make one pass, in which every state is read and written
// once. An element's bits do not depend on where its span begins, because the ragged end of a span
// runs the same vector instructions.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

template <typename Grad, typename Moment, typename Param>
void adamw_span(const AdamWFactors& f, const OptimSpanView<Grad, Param>& span, Moment* m, Moment* v,
                int64_t n) {
  const AdamWStep step(f);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    prefetch_ahead(span, i, m, v);
    const auto w = load(span.master + i, part), grad = load(span.grad + i, part);
    store_weights(step(w, grad, m + i, v + i, part), span, i, part);
  });
}

template <typename Grad, typename Moment, typename Param>
void adamw_typed(const Exec& exec, const AdamWArgs& a) {
  const AdamWFactors f(*exec.step, a);
  const OptimSpanView<Grad, Param> span(a);
  Moment *m = a.m.as<Moment>(), *v = a.v.as<Moment>();
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    adamw_span(f, span.from(begin), m + begin, v + begin, end - begin);
  });
}

// ---- Parameters without f32 masters ----

// Rounds to bf16 stochastically, and returns the result as f32. Adds 16 random bits, the low half
// of a word, below the bits that bf16 keeps. The sum carries into these with the right probability.
// Infinities and NaN are unchanged.
HWY_INLINE F32Vec round_stochastically(F32Vec value, const uint32_t* words) {
  const F32Tag d;
  const hn::RebindToUnsigned<F32Tag> du;
  const auto noise = hn::And(hn::LoadU(du, words), hn::Set(du, 0xffffu));
  const auto carried = hn::Add(hn::BitCast(du, value), noise);
  const auto rounded = hn::BitCast(d, hn::And(carried, hn::Set(du, 0xffff0000u)));
  const auto exponent = hn::And(hn::BitCast(du, value), hn::Set(du, 0x7f800000u));
  const auto finite = hn::RebindMask(d, hn::Ne(exponent, hn::Set(du, 0x7f800000u)));
  return hn::IfThenElse(finite, rounded, value);
}

// Updates a span of bf16 weights. Random words are generated in blocks, into a buffer that stays in
// the L1 cache.
template <typename Grad, typename Moment>
void adamw_rounded_typed(const Exec& exec, const AdamWArgs& a) {
  constexpr int64_t kBlock = 1024;
  const AdamWFactors f(*exec.step, a);
  const PhiloxKey key = rng_key(exec.step->seed, RngDomain::kRounding);
  const uint64_t stream = a.rounding.stream;
  bf16* w = a.master.as<bf16>();
  Moment *m = a.m.as<Moment>(), *v = a.v.as<Moment>();
  const Grad* grad = a.grad.as<Grad>();
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    const AdamWStep step(f);
    // The words have padding at their end, so whole vectors may be read.
    HWY_ALIGN uint32_t words[kBlock + 8 + kF32Lanes];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = end - at < kBlock ? end - at : kBlock;
      const int64_t element = a.rounding.first + at, group = element / 4, skip = element % 4;
      philox_words({static_cast<uint32_t>(group), static_cast<uint32_t>(exec.step->step),
                    static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                   key, (skip + n + 3) / 4, words);
      for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
        const auto new_w =
            step(load(w + at + i, part), load(grad + at + i, part), m + at + i, v + at + i, part);
        store(round_stochastically(new_w, words + skip + i), w + at + i, part);
      });
    }
  });
}

struct LionFactors {
  float clip, beta1, one_minus_beta1, beta2, one_minus_beta2, lr, weight_decay;
};

template <typename Grad, typename Moment, typename Param>
void lion_span(const LionFactors& f, const OptimSpanView<Grad, Param>& span, Moment* m, int64_t n) {
  const F32Tag d;
  const auto clip = hn::Set(d, f.clip), beta1 = hn::Set(d, f.beta1), beta2 = hn::Set(d, f.beta2);
  const auto gamma1 = hn::Set(d, f.one_minus_beta1), gamma2 = hn::Set(d, f.one_minus_beta2);
  const auto lr = hn::Set(d, f.lr), decay = hn::Set(d, f.weight_decay), one = hn::Set(d, 1.f);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(clip, load(span.grad + i, part));
    const auto old_m = load(m + i, part);
    const auto mixed = hn::MulAdd(beta1, old_m, hn::Mul(gamma1, g));
    // sign(0) is 0, so parameters without a gradient do not change.
    const auto sign = hn::IfThenZeroElse(hn::Eq(mixed, hn::Zero(d)), hn::CopySign(one, mixed));
    const auto w = load(span.master + i, part);
    store(hn::MulAdd(beta2, old_m, hn::Mul(gamma2, g)), m + i, part);
    store_weights(hn::NegMulAdd(lr, hn::MulAdd(decay, w, sign), w), span, i, part);
  });
}

template <typename Grad, typename Moment, typename Param>
void lion_typed(const Exec& exec, const LionArgs& a) {
  const LionFactors f = {.clip = exec.step->clip_factor,
                         .beta1 = a.beta1,
                         .one_minus_beta1 = 1.f - a.beta1,
                         .beta2 = a.beta2,
                         .one_minus_beta2 = 1.f - a.beta2,
                         .lr = exec.step->lr * a.lr_factor,
                         .weight_decay = a.weight_decay};
  const OptimSpanView<Grad, Param> span(a);
  Moment* m = a.m.as<Moment>();
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    lion_span(f, span.from(begin), m + begin, end - begin);
  });
}

struct SgdFactors {
  float clip, lr, momentum, weight_decay;
};

template <typename Grad, typename Param>
void sgd_span(const SgdFactors& f, const OptimSpanView<Grad, Param>& span, float* m, int64_t n) {
  const F32Tag d;
  const auto clip = hn::Set(d, f.clip), momentum = hn::Set(d, f.momentum);
  const auto lr = hn::Set(d, f.lr), decay = hn::Set(d, f.weight_decay);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto w = load(span.master + i, part);
    auto update = hn::MulAdd(decay, w, hn::Mul(clip, load(span.grad + i, part)));
    if (m != nullptr) {
      update = hn::MulAdd(momentum, load(m + i, part), update);
      store(update, m + i, part);
    }
    store_weights(hn::NegMulAdd(lr, update, w), span, i, part);
  });
}

template <typename Grad, typename Param>
void sgd_typed(const Exec& exec, const SgdArgs& a) {
  const SgdFactors f = {.clip = exec.step->clip_factor,
                        .lr = exec.step->lr * a.lr_factor,
                        .momentum = a.momentum,
                        .weight_decay = a.weight_decay};
  const OptimSpanView<Grad, Param> span(a);
  float* m = a.m.defined() ? a.m.as<float>() : nullptr;
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    sgd_span(f, span.from(begin), m != nullptr ? m + begin : nullptr, end - begin);
  });
}

void average_target(const Exec& exec, const WeightAverageArgs& a) {
  const auto* master = a.master.as<float>();
  auto* average = a.average.as<float>();
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    const F32Tag d;
    const auto share = hn::Set(d, a.share);
    for_vectors(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      const auto mean = load(average + begin + i, part);
      const auto distance = hn::Sub(load(master + begin + i, part), mean);
      store(hn::MulAdd(share, distance, mean), average + begin + i, part);
    });
  });
}

void adamw_target(const Exec& exec, const AdamWArgs& a) {
  if (a.master.dtype == DType::kBF16) {
    dispatch_optim(a.grad, {}, [&]<typename Grad, typename>() {
      a.m.dtype == DType::kBF16 ? adamw_rounded_typed<Grad, bf16>(exec, a)
                                : adamw_rounded_typed<Grad, float>(exec, a);
    });
    return;
  }
  dispatch_optim(a.grad, a.param, [&]<typename Grad, typename Param>() {
    a.m.dtype == DType::kBF16 ? adamw_typed<Grad, bf16, Param>(exec, a)
                              : adamw_typed<Grad, float, Param>(exec, a);
  });
}

void lion_target(const Exec& exec, const LionArgs& a) {
  dispatch_optim(a.grad, a.param, [&]<typename Grad, typename Param>() {
    a.m.dtype == DType::kBF16 ? lion_typed<Grad, bf16, Param>(exec, a)
                              : lion_typed<Grad, float, Param>(exec, a);
  });
}

void sgd_target(const Exec& exec, const SgdArgs& a) {
  dispatch_optim(a.grad, a.param,
                 [&]<typename Grad, typename Param>() { sgd_typed<Grad, Param>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(adamw_target);
HWY_EXPORT(lion_target);
HWY_EXPORT(sgd_target);
HWY_EXPORT(average_target);

template <>
void cpu::run(const Exec& exec, const AdamWArgs& a) {
  if (step_of("adamw", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(adamw_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const LionArgs& a) {
  if (step_of("lion", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(lion_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const SgdArgs& a) {
  if (step_of("sgd", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(sgd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const WeightAverageArgs& a) {
  if (step_of("weight_average", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(average_target)(exec, a);
}

}  // namespace shale::kernels
#endif
