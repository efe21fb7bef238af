#include "shale/kernels/optim.h"

#include <bit>

#include "shale/base/rng.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/map.cuh"
#include "shale/kernels/cuda/optim/optim_parts.cuh"
#include "shale/kernels/cuda/run.h"

// The optimizers are memory-bound: every state is read and written once. With f32 moments and
// gradients and a 16-bit parameter AdamW moves 30 bytes per element (16 in, 14 out), with bf16
// gradients 28. The kernels use the CPU's instructions, so the bits are the same.

namespace shale::kernels::SHALE_BACKEND {
namespace {

// Weights without f32 masters: a bf16 parameter, which is rounded stochastically.
struct RoundedWeights {
  bf16* data;
  StochasticRounding rounding;

  explicit RoundedWeights(const AdamWArgs& a) : data(a.master.as<bf16>()), rounding(a.rounding) {}

  // Returns whether weights can be accessed in packs; a pack then uses the four words of one Philox
  // counter.
  bool packed(int count) const {
    return reinterpret_cast<uintptr_t>(data) % (count * sizeof(bf16)) == 0 &&
           rounding.first % 4 == 0;
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end, int thread) const {
    prefetch_run(data, begin, end, thread);
  }
  template <int n>
  __device__ __forceinline__ Floats<n> load(int64_t i) const {
    return load_floats<n>(data + i);
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Floats<n> w, const StepState& step) const {
    static_assert(n == 1 || n == 4);
    const int64_t element = rounding.first + i;
    const PhiloxCounter words = philox(
        {static_cast<uint32_t>(element / 4), static_cast<uint32_t>(step.step),
         static_cast<uint32_t>(rounding.stream), static_cast<uint32_t>(rounding.stream >> 32)},
        rng_key(step.seed, RngDomain::kRounding));
    if constexpr (n == 4) {
#pragma unroll
      for (int k = 0; k < 4; ++k) w.at[k] = rounded(w.at[k], words[static_cast<size_t>(k)]);
    } else {
      const int k = static_cast<int>(element % 4);
      w.at[0] = rounded(w.at[0], k == 0   ? words[0]
                                 : k == 1 ? words[1]
                                 : k == 2 ? words[2]
                                          : words[3]);
    }
    store_floats(data + i, w);
  }

 private:
  // Rounds to bf16 stochastically, and returns the result as f32. Adds 16 random bits, the low half
  // of a word, below the bits that bf16 keeps. The sum carries into these with the right
  // probability. Infinities and NaN are unchanged.
  static __device__ __forceinline__ float rounded(float value, uint32_t word) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return value;
    return std::bit_cast<float>((bits + (word & 0xffffu)) & 0xffff0000u);
  }
};

template <class Weights, typename Grad, typename Moment>
struct AdamW {
  static constexpr int kCount = 4;  // elements per thread: 16 bytes of f32
  Weights weights;
  Typed<Grad> grad;
  Typed<Moment> m, v;
  const StepState* step;
  AdamWNumbers numbers;

  AdamW(const Exec& exec, const AdamWArgs& a, const Weights& own)
      : weights(own), grad(a.grad), m(a.m), v(a.v), step(exec.step), numbers(a) {}

  bool packed() const {
    return weights.packed(kCount) && allows_packs(grad, kCount) && allows_packs(m, kCount) &&
           allows_packs(v, kCount);
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    weights.prefetch(begin, end, thread);
    prefetch_run(grad.data, begin, end, thread);
    prefetch_run(m.data, begin, end, thread);
    prefetch_run(v.data, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> w, grad, m, v;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {weights.template load<n>(i), grad.template load<n>(i), m.template load<n>(i),
            v.template load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (step->non_finite != 0) return;
    const AdamWStep element(numbers, *step);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      x.w.at[k] = element(x.w.at[k], x.grad.at[k], x.m.at[k], x.v.at[k]);
    }
    m.template store<n>(i, x.m);
    v.template store<n>(i, x.v);
    weights.store(i, x.w, *step);
  }
};

template <typename Grad, typename Moment, typename Param>
struct Lion {
  static constexpr int kCount = 4;
  Weights<Param> weights;
  Typed<Grad> grad;
  Typed<Moment> m;
  const StepState* step;
  float lr_factor, beta1, one_minus_beta1, beta2, one_minus_beta2, weight_decay;

  Lion(const Exec& exec, const LionArgs& a)
      : weights(a.master, a.param),
        grad(a.grad),
        m(a.m),
        step(exec.step),
        lr_factor(a.lr_factor),
        beta1(a.beta1),
        one_minus_beta1(1.f - a.beta1),
        beta2(a.beta2),
        one_minus_beta2(1.f - a.beta2),
        weight_decay(a.weight_decay) {}

  bool packed() const {
    return weights.packed(kCount) && allows_packs(grad, kCount) && allows_packs(m, kCount);
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    weights.prefetch(begin, end, thread);
    prefetch_run(grad.data, begin, end, thread);
    prefetch_run(m.data, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> w, grad, m;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {weights.template load<n>(i), grad.template load<n>(i), m.template load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (step->non_finite != 0) return;
    const float clip = step->clip_factor, lr = step->lr * lr_factor;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float g = clip * x.grad.at[k];
      const float mixed = fmaf(beta1, x.m.at[k], one_minus_beta1 * g);
      // sign(0) is 0, so parameters without a gradient do not change.
      const float sign = mixed == 0.f ? 0.f : copysignf(1.f, mixed);
      x.m.at[k] = fmaf(beta2, x.m.at[k], one_minus_beta2 * g);
      x.w.at[k] = fmaf(-lr, fmaf(weight_decay, x.w.at[k], sign), x.w.at[k]);
    }
    m.template store<n>(i, x.m);
    weights.store(i, x.w, *step);
  }
};

template <typename Grad, typename Param, bool kMomentum>
struct Sgd {
  static constexpr int kCount = 4;
  Weights<Param> weights;
  Typed<Grad> grad;
  float* m;  // null: SGD without momentum
  const StepState* step;
  float lr_factor, momentum, weight_decay;

  Sgd(const Exec& exec, const SgdArgs& a)
      : weights(a.master, a.param),
        grad(a.grad),
        m(kMomentum ? a.m.as<float>() : nullptr),
        step(exec.step),
        lr_factor(a.lr_factor),
        momentum(a.momentum),
        weight_decay(a.weight_decay) {}

  bool packed() const {
    return weights.packed(kCount) && allows_packs(grad, kCount) &&
           reinterpret_cast<uintptr_t>(m) % (kCount * sizeof(float)) == 0;
  }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    weights.prefetch(begin, end, thread);
    prefetch_run(grad.data, begin, end, thread);
    if constexpr (kMomentum) prefetch_run(m, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> w, grad, m;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    Inputs<n> in{weights.template load<n>(i), grad.template load<n>(i), {}};
    if constexpr (kMomentum) in.m = load_floats<n>(m + i);
    return in;
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (step->non_finite != 0) return;
    const float clip = step->clip_factor, lr = step->lr * lr_factor;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      float update = fmaf(weight_decay, x.w.at[k], clip * x.grad.at[k]);
      if constexpr (kMomentum) update = x.m.at[k] = fmaf(momentum, x.m.at[k], update);
      x.w.at[k] = fmaf(-lr, update, x.w.at[k]);
    }
    if constexpr (kMomentum) store_floats(m + i, x.m);
    weights.store(i, x.w, *step);
  }
};

struct WeightAverage {
  static constexpr int kCount = 4;
  Typed<float> master, average;
  const StepState* step;
  float share;

  WeightAverage(const Exec& exec, const WeightAverageArgs& a)
      : master(a.master), average(a.average), step(exec.step), share(a.share) {}

  bool packed() const { return allows_packs(master, kCount) && allows_packs(average, kCount); }
  __device__ __forceinline__ void prefetch(int64_t begin, int64_t end) const {
    const int thread = static_cast<int>(threadIdx.x);
    prefetch_run(master.data, begin, end, thread);
    prefetch_run(average.data, begin, end, thread);
  }
  template <int n>
  struct Inputs {
    Floats<n> master, average;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {master.template load<n>(i), average.template load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Inputs<n> x) const {
    if (step->non_finite != 0) return;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      x.average.at[k] = fmaf(share, x.master.at[k] - x.average.at[k], x.average.at[k]);
    }
    average.template store<n>(i, x.average);
  }
};

}  // namespace

template <>
void run(const Exec& exec, const AdamWArgs& a) {
  step_of("adamw", exec);
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    dispatch_wide(a.m.dtype, [&]<typename Moment>() {
      if (a.master.dtype == DType::kBF16) {
        map(exec, AdamW<RoundedWeights, Grad, Moment>(exec, a, RoundedWeights(a)),
            a.master.numel());
        return;
      }
      dispatch_param(a.param, [&]<typename Param>() {
        map(exec, AdamW<Weights<Param>, Grad, Moment>(exec, a, {a.master, a.param}),
            a.master.numel());
      });
    });
  });
}

template <>
void run(const Exec& exec, const LionArgs& a) {
  step_of("lion", exec);
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    dispatch_wide(a.m.dtype, [&]<typename Moment>() {
      dispatch_param(a.param, [&]<typename Param>() {
        map(exec, Lion<Grad, Moment, Param>(exec, a), a.master.numel());
      });
    });
  });
}

template <>
void run(const Exec& exec, const SgdArgs& a) {
  step_of("sgd", exec);
  dispatch_wide(a.grad.dtype, [&]<typename Grad>() {
    dispatch_param(a.param, [&]<typename Param>() {
      if (a.m.defined()) {
        map(exec, Sgd<Grad, Param, true>(exec, a), a.master.numel());
      } else {
        map(exec, Sgd<Grad, Param, false>(exec, a), a.master.numel());
      }
    });
  });
}

template <>
void run(const Exec& exec, const WeightAverageArgs& a) {
  step_of("weight_average", exec);
  map(exec, WeightAverage(exec, a), a.master.numel());
}

}  // namespace shale::kernels::SHALE_BACKEND
