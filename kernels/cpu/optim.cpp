#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/loop-inl.h"
#include "kernels/cpu/parallel.h"

// Bound by memory: one pass, every state read and written once. An element's bits do not depend on
// where its span begins, because the ragged end of a span runs the same vector instructions.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Elements per chunk: some 0.5 MiB of states, so that chunks are many and none is tiny.
inline constexpr int64_t kOptimGrain = 16384;

// The values of a step, combined once so that every element sees the same numbers.
struct AdamWFactors {
  float clip, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inv_correction1, inv_correction2, eps, lr, weight_decay;
};

template <typename Grad, typename Param>
void adamw_span(const AdamWFactors& f, float* master, const Grad* grad, float* m, float* v,
                Param* param, int64_t n) {
  const F32Tag d;
  const auto clip = hn::Set(d, f.clip), beta1 = hn::Set(d, f.beta1), beta2 = hn::Set(d, f.beta2);
  const auto gamma1 = hn::Set(d, f.one_minus_beta1), gamma2 = hn::Set(d, f.one_minus_beta2);
  const auto inv1 = hn::Set(d, f.inv_correction1), inv2 = hn::Set(d, f.inv_correction2);
  const auto eps = hn::Set(d, f.eps), lr = hn::Set(d, f.lr), decay = hn::Set(d, f.weight_decay);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(clip, load(grad + i, part));
    const auto new_m = hn::MulAdd(beta1, load(m + i, part), hn::Mul(gamma1, g));
    const auto new_v = hn::MulAdd(beta2, load(v + i, part), hn::Mul(gamma2, hn::Mul(g, g)));
    const auto denominator = hn::Add(hn::Sqrt(hn::Mul(new_v, inv2)), eps);
    const auto adam = hn::Div(hn::Mul(new_m, inv1), denominator);
    const auto w = load(master + i, part);
    const auto new_w = hn::NegMulAdd(lr, hn::MulAdd(decay, w, adam), w);
    store(new_m, m + i, part);
    store(new_v, v + i, part);
    store(new_w, master + i, part);
    if (param != nullptr) store(new_w, param + i, part);
  });
}

template <typename Grad, typename Param>
void adamw_typed(const Exec& exec, const AdamWArgs& a) {
  const StepState& step = *exec.step;
  const AdamWFactors f = {.clip = step.clip_factor,
                          .beta1 = a.beta1,
                          .one_minus_beta1 = 1.f - a.beta1,
                          .beta2 = a.beta2,
                          .one_minus_beta2 = 1.f - a.beta2,
                          .inv_correction1 = 1.f / step.bias_correction1,
                          .inv_correction2 = 1.f / step.bias_correction2,
                          .eps = a.eps,
                          .lr = step.lr * a.lr_factor,
                          .weight_decay = a.weight_decay};
  float *master = a.master.as<float>(), *m = a.m.as<float>(), *v = a.v.as<float>();
  const Grad* grad = a.grad.as<Grad>();
  Param* param = a.param.defined() ? a.param.as<Param>() : nullptr;
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    adamw_span(f, master + begin, grad + begin, m + begin, v + begin,
               param != nullptr ? param + begin : nullptr, end - begin);
  });
}

struct SgdFactors {
  float clip, lr, momentum, weight_decay;
};

template <typename Grad, typename Param>
void sgd_span(const SgdFactors& f, float* master, const Grad* grad, float* m, Param* param,
              int64_t n) {
  const F32Tag d;
  const auto clip = hn::Set(d, f.clip), momentum = hn::Set(d, f.momentum);
  const auto lr = hn::Set(d, f.lr), decay = hn::Set(d, f.weight_decay);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto w = load(master + i, part);
    auto update = hn::MulAdd(decay, w, hn::Mul(clip, load(grad + i, part)));
    if (m != nullptr) {
      update = hn::MulAdd(momentum, load(m + i, part), update);
      store(update, m + i, part);
    }
    const auto new_w = hn::NegMulAdd(lr, update, w);
    store(new_w, master + i, part);
    if (param != nullptr) store(new_w, param + i, part);
  });
}

template <typename Grad, typename Param>
void sgd_typed(const Exec& exec, const SgdArgs& a) {
  const SgdFactors f = {.clip = exec.step->clip_factor,
                        .lr = exec.step->lr * a.lr_factor,
                        .momentum = a.momentum,
                        .weight_decay = a.weight_decay};
  float* master = a.master.as<float>();
  float* m = a.m.defined() ? a.m.as<float>() : nullptr;
  const Grad* grad = a.grad.as<Grad>();
  Param* param = a.param.defined() ? a.param.as<Param>() : nullptr;
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    sgd_span(f, master + begin, grad + begin, m != nullptr ? m + begin : nullptr,
             param != nullptr ? param + begin : nullptr, end - begin);
  });
}

// fn.template operator()<Grad, Param>() for the dtypes of grad and param.
template <typename Fn>
void dispatch_optim(const View& grad, const View& param, const Fn& fn) {
  const auto with_grad = [&]<typename Grad>() {
    if (param.defined() && param.dtype == DType::kF16) {
      fn.template operator()<Grad, f16>();
    } else {
      fn.template operator()<Grad, bf16>();
    }
  };
  if (grad.dtype == DType::kBF16) {
    with_grad.template operator()<bf16>();
  } else {
    with_grad.template operator()<float>();
  }
}

void adamw_target(const Exec& exec, const AdamWArgs& a) {
  dispatch_optim(a.grad, a.param,
                 [&]<typename Grad, typename Param>() { adamw_typed<Grad, Param>(exec, a); });
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
HWY_EXPORT(sgd_target);
namespace {

void check_span(const char* op, const View& master, const View& grad, const View& param) {
  check_dtype(op, "master", master, DType::kF32);
  check_contiguous(op, "master", master);
  check_shape(op, "grad", grad, master.shape);
  check_dtype(op, "grad", grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", grad);
  if (!param.defined()) return;
  check_shape(op, "param", param, master.shape);
  check_dtype(op, "param", param, {DType::kBF16, DType::kF16});
  check_contiguous(op, "param", param);
}

}  // namespace

void cpu::adamw(const Exec& exec, const AdamWArgs& a) {
  check_span("adamw", a.master, a.grad, a.param);
  check_dense("adamw", "m", a.m, a.master.shape, DType::kF32);
  check_dense("adamw", "v", a.v, a.master.shape, DType::kF32);
  if (step_of("adamw", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(adamw_target)(exec, a);
}

void cpu::sgd(const Exec& exec, const SgdArgs& a) {
  check_span("sgd", a.master, a.grad, a.param);
  if (a.m.defined()) check_dense("sgd", "m", a.m, a.master.shape, DType::kF32);
  if (step_of("sgd", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(sgd_target)(exec, a);
}

}  // namespace shale::kernels
#endif
