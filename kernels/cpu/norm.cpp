#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/row_blocks.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/norm.h"

// LayerNorm and RMSNorm. A thread owns whole rows. A row is read several times and stays in the L1
// cache. Sums over rows (dgain, dbias) are computed per block of rows and then over the blocks, in
// order; the blocks depend only on the number of rows.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kNormGrain = 8;  // rows per chunk in forward

// ---- Forward ----

template <typename T>
struct NormRow {
  const T* x;
  const T* residual;  // null: no residual
  T* sum;             // null: not written
  const T* gain;
  const T* bias;  // null: no bias
  T* y;
  int64_t cols;
};

struct RowStats {
  float mean, rstd;
};

// Writes s = x + residual, rounded, to row.sum; returns the total of s, or of its squares. s is
// written before it is read again, so y is computed from the rounded s, which is what backward
// reads.
template <bool kSquares, typename T>
float add_residual(const NormRow<T>& row) {
  TurnSum total;
  for_vectors_in_turns(row.cols, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    auto s = load(row.x + i, part);
    if (row.residual != nullptr) s = hn::Add(s, load(row.residual + i, part));
    if (row.sum != nullptr) {
      store(s, row.sum + i, part);
      if constexpr (sizeof(T) == 2) s = load(row.sum + i, part);
    }
    if constexpr (kSquares) {
      total.add_product(s, s, turn);
    } else {
      total.add(s, turn);
    }
  });
  return total.total();
}

// The variance needs a second pass, because E[s^2] - E[s]^2 cancels. The sum of the deviations
// corrects the rounding error of the mean.
template <typename T>
RowStats layer_norm_stats(const NormRow<T>& row, float eps) {
  const float inv_cols = 1.f / static_cast<float>(row.cols);
  const float first_mean = add_residual<false>(row) / static_cast<float>(row.cols);
  const T* s = row.sum != nullptr ? row.sum : row.x;
  TurnSum deviations, squares;
  const auto center = hn::Set(F32Tag(), first_mean);
  for_vectors_in_turns(row.cols, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    const auto deviation = inside(hn::Sub(load(s + i, part), center), part);
    deviations.add(deviation, turn);
    squares.add_product(deviation, deviation, turn);
  });
  const float shift = deviations.total() * inv_cols;
  const float mean = first_mean + shift;
  // This keeps a NaN: std::max returns its first argument unless that is smaller.
  const float variance = std::max(squares.total() * inv_cols - shift * shift, 0.f);
  return {.mean = mean, .rstd = 1.f / std::sqrt(variance + eps)};
}

template <typename T>
RowStats rms_norm_stats(const NormRow<T>& row, float eps) {
  const float mean_square = add_residual<true>(row) / static_cast<float>(row.cols);
  return {.mean = 0.f, .rstd = 1.f / std::sqrt(mean_square + eps)};
}

template <typename T>
void write_normed(const NormRow<T>& row, const RowStats& stats) {
  const F32Tag d;
  const T* s = row.sum != nullptr ? row.sum : row.x;
  const auto mean_v = hn::Set(d, stats.mean), rstd_v = hn::Set(d, stats.rstd);
  for_vectors(row.cols, [&](int64_t i, auto part) HWY_ATTR {
    const auto normed = hn::Mul(hn::Sub(load(s + i, part), mean_v), rstd_v);
    const auto gain = load(row.gain + i, part);
    const auto y = row.bias != nullptr ? hn::MulAdd(normed, gain, load(row.bias + i, part))
                                       : hn::Mul(normed, gain);
    store(y, row.y + i, part);
  });
}

template <typename T>
T* data_of(const View& view) {
  return view.defined() ? view.as<T>() : nullptr;
}

// For RMSNorm, bias and mean are null.
template <typename T, class Args, class Stats>
void norm_fwd_typed(const Exec& exec, const Args& a, const T* bias, float* mean,
                    const Stats& stats_of) {
  const int64_t cols = a.x.cols();
  const T *x = a.x.template as<T>(), *residual = data_of<T>(a.residual);
  const T* gain = a.gain.template as<T>();
  T *sum = data_of<T>(a.sum), *y = a.y.template as<T>();
  float* rstd = a.rstd.template as<float>();
  parallel_for(exec, a.x.rows(), kNormGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * cols;
      const NormRow<T> row = {.x = x + at,
                              .residual = residual != nullptr ? residual + at : nullptr,
                              .sum = sum != nullptr ? sum + at : nullptr,
                              .gain = gain,
                              .bias = bias,
                              .y = y + at,
                              .cols = cols};
      const RowStats stats = stats_of(row);
      write_normed(row, stats);
      if (mean != nullptr) mean[r] = stats.mean;
      rstd[r] = stats.rstd;
    }
  });
}

// ---- Backward ----

template <typename T>
struct NormBwdRow {
  const T* dy;
  const T* s;
  const T* gain;
  const T* d_sum;  // null: no gradient from other paths
  T* dx;
  float* dgain;  // sums of this block of rows; null: not requested
  float* dbias;  // null: not requested
  float mean, rstd;
  bool centered;  // true for LayerNorm; RMSNorm does not subtract a mean
  int64_t cols;
};

// Computes dx = rstd (g - mean(g) - n mean(g n)) + d_sum, with n = (s - mean) rstd and g = dy gain.
template <typename T>
void norm_bwd_row(const NormBwdRow<T>& row) {
  const F32Tag d;
  const auto mean = hn::Set(d, row.mean), rstd = hn::Set(d, row.rstd);
  TurnSum sum_g, sum_gn;
  for_vectors_in_turns(row.cols, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    const auto dy = load(row.dy + i, part);
    // Lanes outside the part have dy = 0, so they add nothing to the sums.
    const auto normed = hn::Mul(hn::Sub(load(row.s + i, part), mean), rstd);
    const auto g = hn::Mul(dy, load(row.gain + i, part));
    sum_g.add(g, turn);
    sum_gn.add_product(g, inside(normed, part), turn);
    if (row.dgain != nullptr) {
      store(hn::MulAdd(dy, normed, load(row.dgain + i, part)), row.dgain + i, part);
    }
    if (row.dbias != nullptr) {
      store(hn::Add(dy, load(row.dbias + i, part)), row.dbias + i, part);
    }
  });
  const float inv_cols = 1.f / static_cast<float>(row.cols);
  const auto mean_g = hn::Set(d, row.centered ? sum_g.total() * inv_cols : 0.f);
  const auto mean_gn = hn::Set(d, sum_gn.total() * inv_cols);
  for_vectors(row.cols, [&](int64_t i, auto part) HWY_ATTR {
    const auto normed = hn::Mul(hn::Sub(load(row.s + i, part), mean), rstd);
    const auto g = hn::Mul(load(row.dy + i, part), load(row.gain + i, part));
    const auto inner = hn::NegMulAdd(normed, mean_gn, hn::Sub(g, mean_g));
    const auto dx = row.d_sum != nullptr ? hn::MulAdd(rstd, inner, load(row.d_sum + i, part))
                                         : hn::Mul(rstd, inner);
    store(dx, row.dx + i, part);
  });
}

// Computes the backward pass of both norms. RMSNorm has no mean and no dbias.
template <typename T, class Args>
void norm_bwd_typed(const Exec& exec, const Args& a, const float* mean, const ColumnSums& dgain,
                    const ColumnSums& dbias) {
  const int64_t rows = a.dy.rows(), cols = a.dy.cols();
  const RowBlocks blocks(rows);
  const bool want_gain = dgain.out.defined(), want_bias = dbias.out.defined();
  const int64_t sums = (want_gain ? 1 : 0) + (want_bias ? 1 : 0);  // vectors of sums per block
  const int64_t bias_at = want_gain ? cols : 0;
  float* partial = scratch<float>("norm_bwd", exec, blocks.count * sums * cols);
  const T *dy = a.dy.template as<T>(), *s = a.s.template as<T>(), *gain = a.gain.template as<T>();
  const T* d_sum = data_of<T>(a.d_sum);
  T* dx = a.dx.template as<T>();
  const float* rstd = a.rstd.template as<float>();
  parallel_for(exec, rows, blocks.rows, [&](int64_t begin, int64_t end) {
    float* mine = partial + begin / blocks.rows * sums * cols;
    std::fill_n(mine, sums * cols, 0.f);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * cols;
      norm_bwd_row<T>({.dy = dy + at,
                       .s = s + at,
                       .gain = gain,
                       .d_sum = d_sum != nullptr ? d_sum + at : nullptr,
                       .dx = dx + at,
                       .dgain = want_gain ? mine : nullptr,
                       .dbias = want_bias ? mine + bias_at : nullptr,
                       .mean = mean != nullptr ? mean[r] : 0.f,
                       .rstd = rstd[r],
                       .centered = mean != nullptr,
                       .cols = cols});
    }
  });
  if (want_gain) combine_blocks(exec, partial, blocks.count, sums * cols, dgain);
  if (want_bias) combine_blocks(exec, partial + bias_at, blocks.count, sums * cols, dbias);
}

void layer_norm_fwd_target(const Exec& exec, const LayerNormFwdArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    norm_fwd_typed<T>(exec, a, data_of<T>(a.bias), a.mean.as<float>(),
                      [&](const NormRow<T>& row) { return layer_norm_stats(row, a.eps); });
  });
}

void layer_norm_bwd_target(const Exec& exec, const LayerNormBwdArgs& a) {
  dispatch_float(a.dy.dtype, [&]<typename T>() {
    norm_bwd_typed<T>(exec, a, a.mean.as<float>(), {a.dgain, a.accumulate_dgain},
                      {a.dbias, a.accumulate_dbias});
  });
}

void rms_norm_fwd_target(const Exec& exec, const RmsNormFwdArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    norm_fwd_typed<T>(exec, a, static_cast<const T*>(nullptr), nullptr,
                      [&](const NormRow<T>& row) { return rms_norm_stats(row, a.eps); });
  });
}

void rms_norm_bwd_target(const Exec& exec, const RmsNormBwdArgs& a) {
  dispatch_float(a.dy.dtype, [&]<typename T>() {
    norm_bwd_typed<T>(exec, a, nullptr, {a.dgain, a.accumulate_dgain}, {});
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(layer_norm_fwd_target);
HWY_EXPORT(layer_norm_bwd_target);
HWY_EXPORT(rms_norm_fwd_target);
HWY_EXPORT(rms_norm_bwd_target);

template <>
void cpu::run(const Exec& exec, const LayerNormFwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(layer_norm_fwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const LayerNormBwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(layer_norm_bwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const RmsNormFwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(rms_norm_fwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const RmsNormBwdArgs& a) {
  HWY_DYNAMIC_DISPATCH(rms_norm_bwd_target)(exec, a);
}

}  // namespace shale::kernels
#endif
