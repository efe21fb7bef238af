#pragma once

#include "shale/kernels/cuda/elementwise/operand.cuh"
#include "shale/kernels/optim.h"

// Parts that the optimizers' kernels share.
namespace shale::kernels::SHALE_BACKEND {

// The f32 master weights and, if there is one, the 16-bit parameter that is a rounded copy of them.
template <typename Param>
struct Weights {
  float* master;
  Param* param;  // null: no 16-bit parameter

  Weights(const View& master_view, const View& param_view)
      : master(master_view.as<float>()),
        param(param_view.defined() ? param_view.as<Param>() : nullptr) {}

  bool packed(int count) const {
    return reinterpret_cast<uintptr_t>(master) % (count * sizeof(float)) == 0 &&
           reinterpret_cast<uintptr_t>(param) % (count * sizeof(Param)) == 0;
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end, int thread) const {
    prefetch_run(master, begin, end, thread);
  }
  template <int n>
  __device__ __forceinline__ Floats<n> load(int64_t i) const {
    return load_floats<n>(master + i);
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, const Floats<n>& w, const StepState&) const {
    store_floats(master + i, w);
    if (param != nullptr) store_floats(param + i, w);
  }
};

// AdamW's constants, which do not change from step to step.
struct AdamWNumbers {
  float lr_factor, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, weight_decay;

  template <class Args>
  explicit AdamWNumbers(const Args& a)
      : lr_factor(a.lr_factor),
        beta1(a.beta1),
        one_minus_beta1(1.f - a.beta1),
        beta2(a.beta2),
        one_minus_beta2(1.f - a.beta2),
        eps(a.eps),
        weight_decay(a.weight_decay) {}
};

// An AdamW step for one element, with the CPU's instructions.
struct AdamWStep {
  AdamWNumbers numbers;
  float inv_correction1, inv_correction2, clip, lr;

  __device__ __forceinline__ AdamWStep(const AdamWNumbers& of_run, const StepState& step)
      : numbers(of_run),
        inv_correction1(1.f / step.bias_correction1),
        inv_correction2(1.f / step.bias_correction2),
        clip(step.clip_factor),
        lr(step.lr * of_run.lr_factor) {}

  // Updates the moments m and v of one weight w and returns the new weight.
  __device__ __forceinline__ float operator()(float w, float grad, float& m, float& v) const {
    const float g = clip * grad;
    m = fmaf(numbers.beta1, m, numbers.one_minus_beta1 * g);
    v = fmaf(numbers.beta2, v, numbers.one_minus_beta2 * (g * g));
    const float denominator = sqrtf(v * inv_correction2) + numbers.eps;
    const float adam = m * inv_correction1 / denominator;
    return fmaf(-lr, fmaf(numbers.weight_decay, w, adam), w);
  }
};

// Calls fn.template operator()<T>() for f32 or bf16, the dtypes of gradients and moments.
template <class Fn>
void dispatch_wide(DType dtype, const Fn& fn) {
  if (dtype == DType::kBF16) return fn.template operator()<bf16>();
  fn.template operator()<float>();
}

// Calls fn for the parameter's dtype, bf16 or f16, or for no parameter.
template <class Fn>
void dispatch_param(const View& param, const Fn& fn) {
  if (param.defined() && param.dtype == DType::kF16) return fn.template operator()<f16>();
  fn.template operator()<bf16>();
}

}  // namespace shale::kernels::SHALE_BACKEND
