#include "shale/kernels/muon.h"

#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/map.cuh"
#include "shale/kernels/cuda/optim/optim_parts.cuh"
#include "shale/kernels/cuda/run.h"

// Muon's kernels are memory-bound: 14 bytes per element for the momentum with f32 gradients, 12 for
// the step with a 16-bit parameter. They use the CPU's instructions, so the bits are the same.

namespace shale::kernels::SHALE_BACKEND {
namespace {

template <typename Grad>
struct Momentum {
  static constexpr int kCount = 4;
  Typed<Grad> grad;
  Typed<float> m;
  Typed<bf16> update;
  const StepState* step;
  float beta, one_minus_beta;
  bool nesterov;

  Momentum(const Exec& exec, const MuonMomentumArgs& a)
      : grad(a.grad),
        m(a.m),
        update(a.update),
        step(exec.step),
        beta(a.beta),
        one_minus_beta(1.f - a.beta),
        nesterov(a.nesterov) {}

  bool packed() const {
    return allows_packs(grad, kCount) && allows_packs(m, kCount) && allows_packs(update, kCount);
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    prefetch_run(grad.data, begin, end, thread);
    prefetch_run(m.data, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> grad, m;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {grad.template load<n>(i), m.template load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    Floats<n> result{};
    if (step->non_finite == 0) {
      const float clip = step->clip_factor;
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const float share = one_minus_beta * (clip * x.grad.at[k]);
        x.m.at[k] = fmaf(beta, x.m.at[k], share);
        result.at[k] = nesterov ? fmaf(beta, x.m.at[k], share) : x.m.at[k];
      }
      m.template store<n>(i, x.m);
    }
    update.template store<n>(i, result);
  }
};

__global__ void inverse_norm_kernel(const FixedSum* sum, float eps, float* y) {
  await_previous_grid();
  const double squares = sum->value();
  const bool finite = squares < std::numeric_limits<double>::infinity();  // false for NaN
  *y = finite ? static_cast<float>(1.0 / (sqrt(squares) + double{eps})) : 0.f;
}

template <typename Param>
struct Muon {
  static constexpr int kCount = 4;
  Weights<Param> weights;
  Typed<bf16> update;
  const StepState* step;
  float lr_factor, scale, weight_decay;

  Muon(const Exec& exec, const MuonArgs& a)
      : weights(a.master, a.param),
        update(a.update),
        step(exec.step),
        lr_factor(a.lr_factor),
        scale(a.scale),
        weight_decay(a.weight_decay) {}

  bool packed() const { return weights.packed(kCount) && allows_packs(update, kCount); }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    weights.prefetch(begin, end, thread);
    prefetch_run(update.data, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> w, update;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {weights.template load<n>(i), update.template load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (step->non_finite != 0) return;
    const float lr = step->lr * lr_factor;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float change = fmaf(weight_decay, x.w.at[k], scale * x.update.at[k]);
      x.w.at[k] = fmaf(-lr, change, x.w.at[k]);
    }
    weights.store(i, x.w, *step);
  }
};

}  // namespace

template <>
void run(const Exec& exec, const MuonMomentumArgs& a) {
  step_of("muon_momentum", exec);
  dispatch_wide(a.grad.dtype,
                [&]<typename Grad>() { map(exec, Momentum<Grad>(exec, a), a.grad.numel()); });
}

template <>
void run(const Exec& exec, const InverseNormArgs& a) {
  simt::launch(inverse_norm_kernel, {.grid = 1, .block = 1}, exec, a.sum, a.eps, a.y.as<float>());
}

template <>
void run(const Exec& exec, const MuonArgs& a) {
  step_of("muon", exec);
  dispatch_param(a.param,
                 [&]<typename Param>() { map(exec, Muon<Param>(exec, a), a.master.numel()); });
}

}  // namespace shale::kernels::SHALE_BACKEND
