#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/loop-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"

// A thread owns whole rows; a row is passed over several times and stays in the first-level cache.
// Sums over rows (dgain, dbias) are made per block of rows and then over the blocks, in order; the
// blocks depend on the number of rows only.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kNormGrain = 8;  // rows per chunk of forward

// ---- Forward ----

template <typename T>
struct NormRow {
  const T* x;
  const T* residual;  // or null
  T* sum;             // or null
  const T* gain;
  const T* bias;  // or null
  T* y;
  int64_t cols;
};

// sum = x + residual, rounded; returns the sum's mean. Writing s before reading it again is what
// makes y a function of the rounded s, which is all that backward sees.
template <typename T>
float add_and_mean(const NormRow<T>& row) {
  TurnSum total;
  for_vectors_in_turns(row.cols, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    auto s = load(row.x + i, part);
    if (row.residual != nullptr) s = hn::Add(s, load(row.residual + i, part));
    if (row.sum != nullptr) {
      store(s, row.sum + i, part);
      if constexpr (sizeof(T) == 2) s = load(row.sum + i, part);
    }
    total.add(s, turn);
  });
  return total.total() / static_cast<float>(row.cols);
}

// Two passes for the variance, as E[s^2] - E[s]^2 cancels. The deviations' own sum corrects the
// rounding error of the mean.
template <typename T>
void norm_fwd_row(const NormRow<T>& row, float eps, float* mean_out, float* rstd_out) {
  const F32Tag d;
  const float inv_cols = 1.f / static_cast<float>(row.cols);
  const float first_mean = add_and_mean(row);
  const T* s = row.sum != nullptr ? row.sum : row.x;
  TurnSum deviations, squares;
  const auto center = hn::Set(d, first_mean);
  for_vectors_in_turns(row.cols, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    const auto deviation = inside(hn::Sub(load(s + i, part), center), part);
    deviations.add(deviation, turn);
    squares.add_product(deviation, deviation, turn);
  });
  const float shift = deviations.total() * inv_cols;
  const float mean = first_mean + shift;
  // NaN stays: std::max returns its first argument unless that is smaller.
  const float variance = std::max(squares.total() * inv_cols - shift * shift, 0.f);
  const float rstd = 1.f / std::sqrt(variance + eps);
  const auto mean_v = hn::Set(d, mean), rstd_v = hn::Set(d, rstd);
  for_vectors(row.cols, [&](int64_t i, auto part) HWY_ATTR {
    const auto normed = hn::Mul(hn::Sub(load(s + i, part), mean_v), rstd_v);
    const auto gain = load(row.gain + i, part);
    const auto y = row.bias != nullptr ? hn::MulAdd(normed, gain, load(row.bias + i, part))
                                       : hn::Mul(normed, gain);
    store(y, row.y + i, part);
  });
  *mean_out = mean;
  *rstd_out = rstd;
}

template <typename T>
void norm_fwd_typed(const Exec& exec, const LayerNormFwdArgs& a) {
  const int64_t cols = a.x.cols();
  const T* x = a.x.as<T>();
  const T* residual = a.residual.defined() ? a.residual.as<T>() : nullptr;
  T* sum = a.sum.defined() ? a.sum.as<T>() : nullptr;
  const T* bias = a.bias.defined() ? a.bias.as<T>() : nullptr;
  float *mean = a.mean.as<float>(), *rstd = a.rstd.as<float>();
  parallel_for(exec, a.x.rows(), kNormGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * cols;
      norm_fwd_row<T>({.x = x + at,
                       .residual = residual != nullptr ? residual + at : nullptr,
                       .sum = sum != nullptr ? sum + at : nullptr,
                       .gain = a.gain.as<T>(),
                       .bias = bias,
                       .y = a.y.as<T>() + at,
                       .cols = cols},
                      a.eps, mean + r, rstd + r);
    }
  });
}

// ---- Backward ----

template <typename T>
struct NormBwdRow {
  const T* dy;
  const T* s;
  const T* gain;
  const T* d_sum;  // or null
  T* dx;
  float* dgain;  // this block's sums, or null
  float* dbias;  // or null
  float mean, rstd;
  int64_t cols;
};

// With n = (s - mean) rstd and g = dy gain:  dx = rstd (g - mean(g) - n mean(g n)) + d_sum.
template <typename T>
void norm_bwd_row(const NormBwdRow<T>& row) {
  const F32Tag d;
  const auto mean = hn::Set(d, row.mean), rstd = hn::Set(d, row.rstd);
  TurnSum sum_g, sum_gn;
  for_vectors_in_turns(row.cols, [&](int64_t i, auto part, auto turn) HWY_ATTR {
    const auto dy = load(row.dy + i, part);
    // Lanes outside the part have dy = 0, hence add nothing.
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
  const auto mean_g = hn::Set(d, sum_g.total() * inv_cols);
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

template <typename T>
void norm_bwd_typed(const Exec& exec, const LayerNormBwdArgs& a) {
  const int64_t rows = a.dy.rows(), cols = a.dy.cols();
  const RowBlocks blocks(rows);
  const bool want_gain = a.dgain.defined(), want_bias = a.dbias.defined();
  const int64_t sums = (want_gain ? 1 : 0) + (want_bias ? 1 : 0);  // vectors per block
  float* partial = scratch<float>("layer_norm_bwd", exec, blocks.count * sums * cols);
  const T *dy = a.dy.as<T>(), *s = a.s.as<T>(), *gain = a.gain.as<T>();
  const T* d_sum = a.d_sum.defined() ? a.d_sum.as<T>() : nullptr;
  T* dx = a.dx.as<T>();
  const float *mean = a.mean.as<float>(), *rstd = a.rstd.as<float>();
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
                       .dbias = want_bias ? mine + (want_gain ? cols : 0) : nullptr,
                       .mean = mean[r],
                       .rstd = rstd[r],
                       .cols = cols});
    }
  });
  const auto combine = [&](const View& out, int64_t offset, bool accumulate) {
    combine_blocks(exec, partial + offset, blocks.count, sums * cols,
                   {.out = out.as<float>(), .cols = cols, .accumulate = accumulate});
  };
  if (want_gain) combine(a.dgain, 0, a.accumulate_dgain);
  if (want_bias) combine(a.dbias, want_gain ? cols : 0, a.accumulate_dbias);
}

void norm_fwd_target(const Exec& exec, const LayerNormFwdArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { norm_fwd_typed<T>(exec, a); });
}

void norm_bwd_target(const Exec& exec, const LayerNormBwdArgs& a) {
  dispatch_float(a.dy.dtype, [&]<typename T>() { norm_bwd_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(norm_fwd_target);
HWY_EXPORT(norm_bwd_target);
namespace {

// Every view is [rows, C] like `main`, whatever its leading dimensions are.
void check_like(const char* op, const char* arg, const View& view, const View& main) {
  check_dense(op, arg, view, main.shape, main.dtype);
}

void check_rows(const char* op, const char* arg, const View& view, const View& main) {
  check_dtype(op, arg, view, DType::kF32);
  check_contiguous(op, arg, view);
  if (view.numel() == main.rows()) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, ", want ", main.rows(), " rows"));
}

void check_main(const char* op, const char* arg, const View& main) {
  check_dtype(op, arg, main, kComputeDTypes);
  check_contiguous(op, arg, main);
  if (main.ndim() >= 1 && main.cols() > 0) return;
  throw ShapeError(cat(op, ": ", arg, " is ", main, ", want [rows, C] with C > 0"));
}

}  // namespace

void cpu::layer_norm_fwd(const Exec& exec, const LayerNormFwdArgs& a) {
  constexpr const char* kOp = "layer_norm_fwd";
  check_main(kOp, "x", a.x);
  const Shape row = {a.x.cols()};
  if (a.residual.defined()) {
    check_like(kOp, "residual", a.residual, a.x);
    check_defined(kOp, "sum", a.sum);
  }
  if (a.sum.defined()) check_like(kOp, "sum", a.sum, a.x);
  check_dense(kOp, "gain", a.gain, row, a.x.dtype);
  if (a.bias.defined()) check_dense(kOp, "bias", a.bias, row, a.x.dtype);
  check_like(kOp, "y", a.y, a.x);
  check_rows(kOp, "mean", a.mean, a.x);
  check_rows(kOp, "rstd", a.rstd, a.x);
  HWY_DYNAMIC_DISPATCH(norm_fwd_target)(exec, a);
}

void cpu::layer_norm_bwd(const Exec& exec, const LayerNormBwdArgs& a) {
  constexpr const char* kOp = "layer_norm_bwd";
  check_main(kOp, "dy", a.dy);
  const Shape row = {a.dy.cols()};
  check_like(kOp, "s", a.s, a.dy);
  check_dense(kOp, "gain", a.gain, row, a.dy.dtype);
  check_rows(kOp, "mean", a.mean, a.dy);
  check_rows(kOp, "rstd", a.rstd, a.dy);
  if (a.d_sum.defined()) check_like(kOp, "d_sum", a.d_sum, a.dy);
  check_like(kOp, "dx", a.dx, a.dy);
  if (a.dgain.defined()) check_dense(kOp, "dgain", a.dgain, row, DType::kF32);
  if (a.dbias.defined()) check_dense(kOp, "dbias", a.dbias, row, DType::kF32);
  HWY_DYNAMIC_DISPATCH(norm_bwd_target)(exec, a);
}

}  // namespace shale::kernels
#endif
