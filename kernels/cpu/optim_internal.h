#pragma once

#include <cstdint>

#include "shale/base/dtype.h"
#include "shale/base/exec.h"
#include "shale/base/view.h"

namespace shale::kernels {

// Elements per chunk of work: about 0.5 MiB of states, so that there are many chunks and none is
// tiny.
inline constexpr int64_t kOptimGrain = 16384;

// Numbers of an AdamW step, computed once so that every element uses the same numbers.
struct AdamWFactors {
  float clip, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inv_correction1, inv_correction2, eps, lr, weight_decay;

  template <class Args>
  AdamWFactors(const StepState& step, const Args& a)
      : clip(step.clip_factor),
        beta1(a.beta1),
        one_minus_beta1(1.f - a.beta1),
        beta2(a.beta2),
        one_minus_beta2(1.f - a.beta2),
        inv_correction1(1.f / step.bias_correction1),
        inv_correction2(1.f / step.bias_correction2),
        eps(a.eps),
        lr(step.lr * a.lr_factor),
        weight_decay(a.weight_decay) {}
};

// Pointers to the span that an optimizer with f32 masters updates.
template <typename Grad, typename Param>
struct OptimSpanView {
  float* master;
  const Grad* grad;
  Param* param;  // null: no 16-bit parameter

  template <class Args>
  explicit OptimSpanView(const Args& a)
      : master(a.master.template as<float>()),
        grad(a.grad.template as<Grad>()),
        param(a.param.defined() ? a.param.template as<Param>() : nullptr) {}

  // Returns the span from element `begin` on.
  OptimSpanView from(int64_t begin) const {
    OptimSpanView rest = *this;
    rest.master += begin, rest.grad += begin;
    if (param != nullptr) rest.param += begin;
    return rest;
  }
};

// Calls fn.template operator()<Grad, Param>() for the dtypes of grad and param.
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

}  // namespace shale::kernels
