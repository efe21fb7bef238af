#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/loss.cpp"
#include <hwy/foreach_target.h>
//
#include <cfloat>
#include <cmath>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/math-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/loss.h"

// A thread owns whole rows. The first pass over a row keeps a maximum and a sum of exponentials per
// lane (arXiv:1805.02867), the second writes the gradient; a row of a large vocabulary is still in
// the second-level cache then, so that memory sees one read and one write.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// max over the row, and the sum of exp(x - max).
struct RowSoftmax {
  float max;
  float sum;
};

// Per lane. A NaN among the logits may pass the maximum unseen but never the sum.
class OnlineSoftmax {
 public:
  // Eight vectors at once: rescaling the sum costs one exp for the eight.
  static constexpr int kGroup = 8;

  // The maximum starts not at -inf, as the difference of two of those is NaN.
  HWY_INLINE OnlineSoftmax() : max_(hn::Set(F32Tag(), -FLT_MAX)), sum_(hn::Zero(F32Tag())) {}

  template <int n>
  HWY_INLINE void add(const F32Vec (&x)[n]) {
    const F32Tag d;
    auto top = x[0];
    for (int k = 1; k < n; ++k) top = hn::Max(top, x[k]);
    const auto new_max = hn::Max(max_, top);
    auto added = exp_nonpositive(d, hn::Sub(x[0], new_max));
    for (int k = 1; k < n; ++k) {
      added = hn::Add(added, exp_nonpositive(d, hn::Sub(x[k], new_max)));
    }
    sum_ = hn::MulAdd(sum_, exp_nonpositive(d, hn::Sub(max_, new_max)), added);
    max_ = new_max;
  }

  HWY_INLINE RowSoftmax result() const {
    const F32Tag d;
    const float max = max_lanes(d, max_);
    const auto scaled = hn::Mul(sum_, exp_nonpositive(d, hn::Sub(max_, hn::Set(d, max))));
    return {.max = max, .sum = sum_lanes(d, scaled)};
  }

 private:
  F32Vec max_, sum_;
};

// softcap * tanh(x / softcap)
template <bool kCapped>
HWY_INLINE F32Vec capped(F32Vec x, float softcap) {
  if constexpr (!kCapped) return x;
  const F32Tag d;
  return hn::Mul(tanh_f32(d, hn::Mul(x, hn::Set(d, 1.f / softcap))), hn::Set(d, softcap));
}

template <bool kCapped, typename T>
RowSoftmax softmax_of_row(const T* x, int64_t vocab, float softcap) {
  const F32Tag d;
  const auto logits = [=](const T* at) HWY_ATTR { return capped<kCapped>(load(d, at), softcap); };
  constexpr int kGroup = OnlineSoftmax::kGroup;
  OnlineSoftmax online;
  int64_t i = 0;
  for (; i + kGroup * kF32Lanes <= vocab; i += kGroup * kF32Lanes) {
    F32Vec group[kGroup];
    for (int k = 0; k < kGroup; ++k) group[k] = logits(x + i + k * kF32Lanes);
    online.add(group);
  }
  for (; i + kF32Lanes <= vocab; i += kF32Lanes) online.add({logits(x + i)});
  if (i < vocab) {
    const auto valid = hn::FirstN(d, static_cast<size_t>(vocab - i));
    const auto last = capped<kCapped>(load_n(d, x + i, vocab - i), softcap);
    online.add({hn::IfThenElse(valid, last, hn::Set(d, -FLT_MAX))});
  }
  return online.result();
}

// softmax * scale over the first `vocab` columns, times the slope of a capped logit; zeros after
// them.
template <bool kCapped, typename T>
void write_softmax(T* x, int64_t vocab, int64_t cols, RowSoftmax row, float scale, float softcap) {
  const F32Tag d;
  const auto max = hn::Set(d, row.max), factor = hn::Set(d, scale / row.sum);
  const auto inverse = hn::Set(d, kCapped ? 1.f / softcap : 0.f), one = hn::Set(d, 1.f);
  for_vectors(vocab, [&](int64_t i, auto part) HWY_ATTR {
    const auto logits = capped<kCapped>(load(x + i, part), softcap);
    auto gradient = hn::Mul(exp_nonpositive(d, hn::Sub(logits, max)), factor);
    if constexpr (kCapped) {
      const auto tanh = hn::Mul(logits, inverse);
      gradient = hn::Mul(gradient, hn::NegMulAdd(tanh, tanh, one));
    }
    store(gradient, x + i, part);
  });
  for (int64_t i = vocab; i < cols; ++i) x[i] = T(0.f);
}

template <bool kCapped, typename T>
float loss_of_row(T* x, int32_t target, const CrossEntropyArgs& a, float scale) {
  const int64_t cols = a.logits.cols();
  if (target == kIgnoreTarget) {
    if (a.write_grad) {
      for (int64_t i = 0; i < cols; ++i) x[i] = T(0.f);
    }
    return 0.f;
  }
  const RowSoftmax row = softmax_of_row<kCapped>(x, a.vocab, a.softcap);
  const float logit = hn::GetLane(capped<kCapped>(hn::Set(F32Tag(), to_f32(x[target])), a.softcap));
  const double shifted = double{logit} - row.max;
  if (a.write_grad) {
    write_softmax<kCapped>(x, a.vocab, cols, row, scale, a.softcap);
    const double tanh = kCapped ? logit / double{a.softcap} : 0, slope = 1 - tanh * tanh;
    // In f64, because p - 1 cancels when the model is right.
    x[target] = T(static_cast<float>((std::exp(shifted) / row.sum - 1) * scale * slope));
  }
  return static_cast<float>(std::log(double{row.sum}) - shifted);
}

template <typename T>
void cross_entropy_typed(const Exec& exec, const CrossEntropyArgs& a) {
  T* logits = a.logits.as<T>();
  const int64_t stride = a.logits.stride(0);
  const int32_t* targets = a.targets.as<int32_t>();
  float* losses = a.losses.as<float>();
  const float scale = a.write_grad ? exec.step->grad_scale * exec.step->loss_scale.value : 0.f;
  parallel_for(exec, a.logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* const row = logits + r * stride;
      losses[r] = a.softcap > 0 ? loss_of_row<true>(row, targets[r], a, scale)
                                : loss_of_row<false>(row, targets[r], a, scale);
    }
  });
}

void cross_entropy_target(const Exec& exec, const CrossEntropyArgs& a) {
  dispatch_float(a.logits.dtype, [&]<typename T>() { cross_entropy_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(cross_entropy_target);

template <>
void cpu::run(const Exec& exec, const CrossEntropyArgs& a) {
  constexpr const char* kOp = "cross_entropy";
  if (a.write_grad) step_of(kOp, exec);
  const int32_t* targets = a.targets.as<int32_t>();
  for (int64_t r = 0; r < a.logits.size(0); ++r) {
    if (targets[r] == kIgnoreTarget || (targets[r] >= 0 && targets[r] < a.vocab)) continue;
    throw DataError(cat(kOp, ": the target of row ", r, " is ", targets[r], ", want 0 to ",
                        a.vocab - 1, " or ", kIgnoreTarget));
  }
  HWY_DYNAMIC_DISPATCH(cross_entropy_target)(exec, a);
}

}  // namespace shale::kernels
#endif
