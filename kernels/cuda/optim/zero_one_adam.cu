#include "shale/kernels/zero_one_adam.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/optim/optim_parts.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// A thread block owns a block of kWeightBlock elements, a thread one of them: all have read the
// block's weight and rates before its first thread replaces them. Bound by memory. The arithmetic
// is the CPU's, instruction by instruction, and so are the bits.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = static_cast<int>(kWeightBlock);

template <typename Grad, typename Param>
struct ZeroOne {
  Weights<Param> weights;
  const Grad* grad;
  float *m, *v, *v_weight, *anchor, *sum, *rates;
  int64_t count;
  ZeroOneStep kind;
  bool updates_v, clips;
  float grad_factor, lr_factor, beta1, gamma1, beta2, gamma2, eps, weight_decay;

  explicit ZeroOne(const ZeroOneAdamArgs& a)
      : weights(a.master, a.param),
        grad(a.grad.defined() ? a.grad.as<Grad>() : nullptr),
        m(a.m.as<float>()),
        v(a.v.as<float>()),
        v_weight(a.v_weight.as<float>()),
        anchor(a.anchor.defined() ? a.anchor.as<float>() : nullptr),
        sum(a.sum.defined() ? a.sum.as<float>() : nullptr),
        rates(a.rates.defined() ? a.rates.as<float>() : nullptr),
        count(a.master.numel()),
        kind(a.step),
        updates_v(a.updates_v),
        clips(a.clips),
        grad_factor(a.grad_factor),
        lr_factor(a.lr_factor),
        beta1(a.beta1),
        gamma1(1.f - a.beta1),
        beta2(a.beta2),
        gamma2(1.f - a.beta2),
        eps(a.eps),
        weight_decay(a.weight_decay) {}

  // a(u) of the header.
  __device__ __forceinline__ float step_of_sum(float u, float of_v, float inv2) const {
    return of_v != 0 ? lr_factor * u / (sqrtf(of_v * inv2) + eps) : 0.f;
  }
  // The new weight of element i. weight, rate: of its block, the first as this step leaves it.
  __device__ __forceinline__ float element(int64_t i, float weight, float rate,
                                           const StepState& step) const {
    const float inv2 = weight > 0 ? 1.f / weight : 0.f;
    if (kind == ZeroOneStep::kPlace) return anchor[i] - step_of_sum(sum[i], v[i], inv2);
    if (kind == ZeroOneStep::kJoin) {
      if (!(rate > 0)) return anchor[i];
      const float u = sum[i], joined = anchor[i] - step_of_sum(u, v[i], inv2);
      m[i] = step.bias_correction1 / rate * u;
      sum[i] = 0;
      return anchor[i] = joined;
    }
    const float factor = grad_factor * (clips ? step.clip_factor : 1.f);
    const float g = factor * to_float(grad[i]);
    const float mixed = fmaf(beta1, m[i], gamma1 * g);
    const float scaled = step.lr * (1.f / step.bias_correction1);
    const float kept = step.lr * lr_factor * weight_decay;
    float of_v = v[i];
    if (kind == ZeroOneStep::kLocal) {
      const float moment = of_v != 0 ? mixed : 0.f;
      const float u = fmaf(scaled, moment, sum[i]);
      const float decayed = fmaf(-kept, anchor[i], anchor[i]);
      m[i] = moment, sum[i] = u, anchor[i] = decayed;
      return decayed - step_of_sum(u, of_v, inv2);
    }
    if (updates_v) v[i] = of_v = fmaf(beta2, of_v, gamma2 * (g * g));
    m[i] = mixed;
    const float w = weights.master[i];
    return fmaf(-kept, w, w) - step_of_sum(scaled * mixed, of_v, inv2);
  }
};

template <typename Grad, typename Param>
__global__ void __launch_bounds__(kThreads)
    zero_one_adam_kernel(ZeroOne<Grad, Param> of, const StepState* step) {
  await_previous_grid();
  if (step->non_finite != 0 && of.kind != ZeroOneStep::kPlace) return;
  const int64_t block = blockIdx.x;
  float weight = of.v_weight[block];
  const float rate = of.rates != nullptr ? of.rates[block] : 0.f;
  if (of.kind == ZeroOneStep::kShared && of.updates_v) weight = of.beta2 * weight + of.gamma2;
  __syncthreads();
  const int64_t i = block * kWeightBlock + threadIdx.x;
  if (i < of.count) {
    Floats<1> w;
    w.at[0] = of.element(i, weight, rate, *step);
    of.weights.store(i, w, *step);
  }
  if (threadIdx.x != 0) return;
  if (of.kind == ZeroOneStep::kShared) of.v_weight[block] = weight;
  if (of.kind == ZeroOneStep::kLocal) of.rates[block] = rate + step->lr;
  if (of.kind == ZeroOneStep::kJoin) of.rates[block] = 0;
}

}  // namespace

template <>
void run(const Exec& exec, const ZeroOneAdamArgs& a) {
  step_of("zero_one_adam", exec);
  if (a.master.numel() == 0) return;
  const int64_t grid = ceil_div(a.master.numel(), kWeightBlock);
  dispatch_wide(a.grad.defined() ? a.grad.dtype : DType::kF32, [&]<typename Grad>() {
    dispatch_param(a.param, [&]<typename Param>() {
      simt::launch(zero_one_adam_kernel<Grad, Param>, {.grid = grid, .block = kThreads}, exec,
                   ZeroOne<Grad, Param>(a), exec.step);
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
