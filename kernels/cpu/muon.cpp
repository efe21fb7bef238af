#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/muon.cpp"
#include <hwy/foreach_target.h>
//
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/optim_internal.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/muon.h"

// Muon's kernels are memory-bound: each makes one pass over memory.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

struct MomentumFactors {
  float clip, beta, one_minus_beta;
  bool nesterov;
};

template <typename Grad>
void momentum_span(const MomentumFactors& f, const Grad* grad, float* m, bf16* update, int64_t n) {
  const F32Tag d;
  const auto clip = hn::Set(d, f.clip), beta = hn::Set(d, f.beta);
  const auto rest = hn::Set(d, f.one_minus_beta);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto share = hn::Mul(rest, hn::Mul(clip, load(grad + i, part)));
    const auto mean = hn::MulAdd(beta, load(m + i, part), share);
    store(mean, m + i, part);
    store(f.nesterov ? hn::MulAdd(beta, mean, share) : mean, update + i, part);
  });
}

void momentum_target(const Exec& exec, const MuonMomentumArgs& a) {
  const MomentumFactors f = {.clip = exec.step->clip_factor,
                             .beta = a.beta,
                             .one_minus_beta = 1.f - a.beta,
                             .nesterov = a.nesterov};
  float* m = a.m.as<float>();
  bf16* update = a.update.as<bf16>();
  dispatch_gradient(a.grad.dtype, [&]<typename Grad>() {
    const Grad* grad = a.grad.as<Grad>();
    parallel_for(exec, a.grad.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
      momentum_span(f, grad + begin, m + begin, update + begin, end - begin);
    });
  });
}

struct MuonFactors {
  float lr, scale, weight_decay;
};

template <typename Param>
void muon_span(const MuonFactors& f, const bf16* update, float* master, Param* param, int64_t n) {
  const F32Tag d;
  const auto lr = hn::Set(d, f.lr), scale = hn::Set(d, f.scale);
  const auto decay = hn::Set(d, f.weight_decay);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto w = load(master + i, part);
    const auto step = hn::MulAdd(decay, w, hn::Mul(scale, load(update + i, part)));
    const auto stepped = hn::NegMulAdd(lr, step, w);
    store(stepped, master + i, part);
    if (param != nullptr) store(stepped, param + i, part);
  });
}

void muon_target(const Exec& exec, const MuonArgs& a) {
  const MuonFactors f = {
      .lr = exec.step->lr * a.lr_factor, .scale = a.scale, .weight_decay = a.weight_decay};
  float* master = a.master.as<float>();
  dispatch_optim(a.update, a.param, [&]<typename, typename Param>() {
    const bf16* update = a.update.as<bf16>();
    Param* param = a.param.defined() ? a.param.as<Param>() : nullptr;
    parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
      muon_span(f, update + begin, master + begin, param != nullptr ? param + begin : nullptr,
                end - begin);
    });
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(momentum_target);
HWY_EXPORT(muon_target);

template <>
void cpu::run(const Exec& exec, const MuonMomentumArgs& a) {
  if (step_of("muon_momentum", exec).non_finite != 0) {
    std::fill_n(a.update.as<bf16>(), a.update.numel(), bf16(0.f));
    return;
  }
  HWY_DYNAMIC_DISPATCH(momentum_target)(exec, a);
}

template <>
void cpu::run(const Exec&, const InverseNormArgs& a) {
  const double sum = a.sum->value();
  *a.y.as<float>() =
      std::isfinite(sum) ? static_cast<float>(1 / (std::sqrt(sum) + double{a.eps})) : 0.f;
}

template <>
void cpu::run(const Exec& exec, const MuonArgs& a) {
  if (step_of("muon", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(muon_target)(exec, a);
}

}  // namespace shale::kernels
#endif
