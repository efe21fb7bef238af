#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/loss.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/math-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/loss.h"

// Softmax cross-entropy. A thread owns whole rows. The first pass over a row computes a maximum and
// a sum of exponentials per lane (arXiv:1805.02867), the second writes the gradient. In the second
// pass the row is still in the L2 cache, even for large vocabularies, so memory is read once and
// written once.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Maximum of the row, and the sum of exp(x - max).
struct RowSoftmax {
  float max;
  float sum;
};

// Softmax state per lane. The maximum may ignore a NaN among the logits, but the sum never does.
class OnlineSoftmax {
 public:
  // A step adds eight vectors, so that rescaling the sum costs one exp for all eight.
  static constexpr int kGroup = 8;

  // The maximum does not start at -inf, because -inf minus -inf is NaN.
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

// Computes softcap * tanh(x / softcap).
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

// Writes softmax * scale * derivative of the softcap to the first `vocab` columns, and zeros to the
// padding columns.
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
    // This is computed in f64, because p - 1 cancels when the model predicts the target.
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

// ---- Sharded vocabulary ----

// Returns how many of the `cols` columns from `first` on belong to the vocabulary and are not
// padding.
inline int64_t counted(int64_t vocab, int64_t first, int64_t cols) {
  return std::clamp<int64_t>(vocab - first, 0, cols);
}

template <typename T>
void stats_typed(const Exec& exec, const CrossEntropyStatsArgs& a) {
  const int64_t columns = counted(a.vocab, a.first_column, a.logits.cols());
  const int32_t* targets = a.targets.as<int32_t>();
  parallel_for(exec, a.logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = a.logits.as<T>() + r * a.logits.stride(0);
      float* stats = a.stats.as<float>() + 3 * r;
      if (targets[r] == kIgnoreTarget) {
        std::fill_n(stats, 3, 0.f);
        continue;
      }
      const RowSoftmax found = softmax_of_row<false>(row, columns, /*softcap=*/0);
      const int64_t own = targets[r] - a.first_column;
      stats[0] = found.max;
      stats[1] = found.sum;
      stats[2] =
          own >= 0 && own < columns ? to_f32(row[own]) : -std::numeric_limits<float>::infinity();
    }
  });
}

struct MergedRow {
  RowSoftmax softmax;
  float target;  // logit of the target
};

// Merges the stats of row r over all parts; stats is [parts, rows, 3].
inline MergedRow merged_row(const View& stats, int64_t r) {
  const int64_t parts = stats.size(0), stride = 3 * stats.size(1);
  const float* of_row = stats.as<float>() + 3 * r;
  MergedRow row{.softmax = {.max = of_row[0], .sum = 0}, .target = of_row[2]};
  for (int64_t k = 1; k < parts; ++k) {
    row.softmax.max = std::max(row.softmax.max, of_row[k * stride]);
    row.target = std::max(row.target, of_row[k * stride + 2]);
  }
  std::array<float, kMaxVocabularyParts> sums;
  for (int64_t k = 0; k < parts; ++k) {
    const double factor = std::exp(double{of_row[k * stride]} - double{row.softmax.max});
    sums[static_cast<size_t>(k)] = static_cast<float>(double{of_row[k * stride + 1]} * factor);
  }
  for (int64_t step = 1; step < parts; step *= 2) {
    for (int64_t k = 0; k + step < parts; k += 2 * step) {
      sums[static_cast<size_t>(k)] += sums[static_cast<size_t>(k + step)];
    }
  }
  row.softmax.sum = sums[0];
  return row;
}

template <typename T>
float part_of_row(T* x, int64_t r, const CrossEntropyGradArgs& a, float scale) {
  const int64_t cols = a.logits.cols(), columns = counted(a.vocab, a.first_column, cols);
  const int32_t target = a.targets.as<int32_t>()[r];
  if (target == kIgnoreTarget) {
    if (a.write_grad) std::fill_n(x, cols, T(0.f));
    return 0.f;
  }
  const MergedRow row = merged_row(a.stats, r);
  const double shifted = double{row.target} - row.softmax.max;
  if (a.write_grad) {
    write_softmax<false>(x, columns, cols, row.softmax, scale, /*softcap=*/0);
    if (const int64_t own = target - a.first_column; own >= 0 && own < columns) {
      x[own] = T(static_cast<float>((std::exp(shifted) / row.softmax.sum - 1) * scale));
    }
  }
  return static_cast<float>(std::log(double{row.softmax.sum}) - shifted);
}

template <typename T>
void grad_typed(const Exec& exec, const CrossEntropyGradArgs& a) {
  const float scale = a.write_grad ? exec.step->grad_scale * exec.step->loss_scale.value : 0.f;
  float* losses = a.losses.defined() ? a.losses.as<float>() : nullptr;
  parallel_for(exec, a.logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float loss = part_of_row(a.logits.as<T>() + r * a.logits.stride(0), r, a, scale);
      if (losses != nullptr) losses[r] = loss;
    }
  });
}

void cross_entropy_stats_target(const Exec& exec, const CrossEntropyStatsArgs& a) {
  dispatch_float(a.logits.dtype, [&]<typename T>() { stats_typed<T>(exec, a); });
}

void cross_entropy_grad_target(const Exec& exec, const CrossEntropyGradArgs& a) {
  dispatch_float(a.logits.dtype, [&]<typename T>() { grad_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(cross_entropy_target);
HWY_EXPORT(cross_entropy_stats_target);
HWY_EXPORT(cross_entropy_grad_target);
namespace {

void check_targets(const char* op, const View& targets, int64_t vocab) {
  if (DryRun::is_on()) return;
  const int32_t* target = targets.as<int32_t>();
  for (int64_t r = 0; r < targets.numel(); ++r) {
    if (target[r] == kIgnoreTarget || (target[r] >= 0 && target[r] < vocab)) continue;
    throw DataError(cat(op, ": the target of row ", r, " is ", target[r], ", expected 0 to ",
                        vocab - 1, " or ", kIgnoreTarget));
  }
}

}  // namespace

template <>
void cpu::run(const Exec& exec, const CrossEntropyArgs& a) {
  constexpr const char* kOp = "cross_entropy";
  if (a.write_grad) step_of(kOp, exec);
  check_targets(kOp, a.targets, a.vocab);
  HWY_DYNAMIC_DISPATCH(cross_entropy_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const CrossEntropyStatsArgs& a) {
  check_targets("cross_entropy_stats", a.targets, a.vocab);
  HWY_DYNAMIC_DISPATCH(cross_entropy_stats_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const CrossEntropyGradArgs& a) {
  if (a.write_grad) step_of("cross_entropy_grad", exec);
  HWY_DYNAMIC_DISPATCH(cross_entropy_grad_target)(exec, a);
}

}  // namespace shale::kernels
#endif
