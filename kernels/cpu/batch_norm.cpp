#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/batch_norm.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>

#include "shale/kernels/batch_norm.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/row_blocks.h"
#include "shale/kernels/cpu/run.h"

// Batch norm. A thread owns a block of rows, whose sums stay in cache. The number of blocks depends
// only on the number of rows. The sums of the blocks are then added in order, in f64.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kBatchNormGrain = 32;     // rows per chunk for elementwise passes
// channels per chunk when the sums of blocks are added
inline constexpr int64_t kBatchChannelGrain = 64;

// Number of channel vectors processed together: their sums stay in registers over a block's rows.
template <int k>
struct Vectors {
  static constexpr int count = k;
};

// Divides the columns [0, cols) into strips of one or four vectors. Calls fn(i, part, vectors) for
// each strip; i is its first column.
template <class Fn>
HWY_INLINE void for_strips(int64_t cols, const Fn& fn) {
  constexpr int64_t kL = kF32Lanes;
  int64_t i = 0;
  for (; i + 4 * kL <= cols; i += 4 * kL) fn(i, Whole(), Vectors<4>());
  for (; i + kL <= cols; i += kL) fn(i, Whole(), Vectors<1>());
  if (i < cols) fn(i, Part{cols - i}, Vectors<1>());
}

// ---- Moments ----

// Computes the mean and the sum of squared deviations of one block of rows, in two passes. The
// second pass also sums the deviations, which corrects the rounding error of the first pass's mean.
template <typename T>
void block_moments(const T* x, int64_t rows, int64_t cols, float* mean, float* squares) {
  const auto inv_rows = hn::Set(F32Tag(), 1.f / static_cast<float>(rows));
  for_strips(cols, [&](int64_t i, auto part, auto vectors) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::count;
    F32Vec center[kVectors], square[kVectors], deviation[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      center[k] = square[k] = deviation[k] = hn::Zero(F32Tag());
    }
    const T* const strip = x + i;
    for (int64_t r = 0; r < rows; ++r) {
      for (int k = 0; k < kVectors; ++k) {
        center[k] = hn::Add(center[k], load(strip + r * cols + k * kF32Lanes, part));
      }
    }
    for (int k = 0; k < kVectors; ++k) center[k] = hn::Mul(center[k], inv_rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int k = 0; k < kVectors; ++k) {
        const auto d = hn::Sub(load(strip + r * cols + k * kF32Lanes, part), center[k]);
        square[k] = hn::MulAdd(d, d, square[k]);
        deviation[k] = hn::Add(deviation[k], d);
      }
    }
    for (int k = 0; k < kVectors; ++k) {
      const auto shift = hn::Mul(deviation[k], inv_rows);
      store(hn::Add(center[k], shift), mean + i + k * kF32Lanes, part);
      store(hn::Sub(square[k], hn::Mul(deviation[k], shift)), squares + i + k * kF32Lanes, part);
    }
  });
}

template <typename T>
void batch_moments_typed(const Exec& exec, const BatchMomentsArgs& a) {
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  const RowBlocks blocks(rows);
  float* partial = scratch<float>("batch_moments", exec, blocks.count * 2 * cols);
  const T* x = a.x.as<T>();
  parallel_for(exec, rows, blocks.rows, [&](int64_t begin, int64_t end) {
    float* mine = partial + begin / blocks.rows * 2 * cols;
    block_moments(x + begin * cols, end - begin, cols, mine, mine + cols);
  });
  float* out = a.moments.as<float>();
  parallel_for(exec, cols, kBatchChannelGrain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double mean = 0, squares = 0, count = 0;
      for (int64_t block = 0; block < blocks.count; ++block) {
        const auto size = static_cast<double>(std::min(blocks.rows, rows - block * blocks.rows));
        const double delta = double{partial[block * 2 * cols + c]} - mean;
        const double share = size / (count + size);
        mean += delta * share;
        squares += double{partial[(block * 2 + 1) * cols + c]} + delta * delta * count * share;
        count += size;
      }
      out[c] = static_cast<float>(mean);
      out[cols + c] = static_cast<float>(squares);
    }
  });
  out[2 * cols] = static_cast<float>(rows);
}

void batch_moments_target(const Exec& exec, const BatchMomentsArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { batch_moments_typed<T>(exec, a); });
}

// ---- Forward ----

template <typename T>
void batch_norm_typed(const Exec& exec, const BatchNormArgs& a) {
  const int64_t cols = a.x.size(1);
  // Forward is y = x scale + shift, with a precomputed scale and shift per channel.
  float* scale = scratch<float>("batch_norm", exec, 2 * cols);
  float* shift = scale + cols;
  const float *mean = a.mean.as<float>(), *rstd = a.rstd.as<float>();
  const T *gain = a.gain.as<T>(), *bias = a.bias.as<T>();
  for_vectors(cols, [&](int64_t i, auto part) HWY_ATTR {
    const auto factor = hn::Mul(load(gain + i, part), load(rstd + i, part));
    store(factor, scale + i, part);
    store(hn::NegMulAdd(load(mean + i, part), factor, load(bias + i, part)), shift + i, part);
  });
  const T* x = a.x.as<T>();
  const T* residual = a.residual.defined() ? a.residual.as<T>() : nullptr;
  T* y = a.y.as<T>();
  const bool relu = a.relu;
  parallel_for(exec, a.x.size(0), kBatchNormGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * cols; at < end * cols; at += cols) {
      for_vectors(cols, [&](int64_t i, auto part) HWY_ATTR {
        auto v = hn::MulAdd(load(x + at + i, part), load(scale + i, part), load(shift + i, part));
        if (residual != nullptr) v = hn::Add(v, load(residual + at + i, part));
        // The comparison is false for NaN, so a NaN stays.
        if (relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(F32Tag())), v);
        store(v, y + at + i, part);
      });
    }
  });
}

void batch_norm_target(const Exec& exec, const BatchNormArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { batch_norm_typed<T>(exec, a); });
}

// ---- Backward ----

// Returns the gradient before relu: 0 where relu gave 0.
template <typename T, class P>
HWY_INLINE F32Vec masked_gradient(const T* dy, const T* y, P part) {
  const auto g = load(dy, part);
  if (y == nullptr) return g;
  return hn::IfThenZeroElse(hn::Eq(load(y, part), hn::Zero(F32Tag())), g);
}

// Writes a gradient of shape [C] from a row of sums.
void write_gradient(const float* sums, const View& gradient, bool accumulate) {
  if (!gradient.defined()) return;
  dispatch_gradient(gradient.dtype, [&]<typename T>() {
    T* out = gradient.as<T>();
    for (int64_t c = 0; c < gradient.numel(); ++c) {
      out[c] = static_cast<T>(accumulate ? to_f32(out[c]) + sums[c] : sums[c]);
    }
  });
}

template <typename T>
void batch_norm_sums_typed(const Exec& exec, const BatchNormSumsArgs& a) {
  const int64_t rows = a.dy.size(0), cols = a.dy.size(1);
  const RowBlocks blocks(rows);
  float* partial = scratch<float>("batch_norm_sums", exec, blocks.count * 2 * cols);
  const T *dy = a.dy.as<T>(), *x = a.x.as<T>();
  const T* y = a.y.defined() ? a.y.as<T>() : nullptr;
  const float *mean = a.mean.as<float>(), *rstd = a.rstd.as<float>();
  parallel_for(exec, rows, blocks.rows, [&](int64_t begin, int64_t end) {
    float* mine = partial + begin / blocks.rows * 2 * cols;
    for_strips(cols, [&](int64_t i, auto part, auto vectors) HWY_ATTR {
      constexpr int kVectors = decltype(vectors)::count;
      F32Vec sum_g[kVectors], sum_gn[kVectors];
      for (int k = 0; k < kVectors; ++k) sum_g[k] = sum_gn[k] = hn::Zero(F32Tag());
      for (int64_t row = begin * cols + i; row < end * cols; row += cols) {
        for (int k = 0; k < kVectors; ++k) {
          const int64_t at = row + k * kF32Lanes, channel = i + k * kF32Lanes;
          const auto g = masked_gradient(dy + at, y == nullptr ? y : y + at, part);
          const auto centered = hn::Sub(load(x + at, part), load(mean + channel, part));
          sum_g[k] = hn::Add(sum_g[k], g);
          sum_gn[k] = hn::MulAdd(g, hn::Mul(centered, load(rstd + channel, part)), sum_gn[k]);
        }
      }
      for (int k = 0; k < kVectors; ++k) {
        store(sum_g[k], mine + i + k * kF32Lanes, part);
        store(sum_gn[k], mine + cols + i + k * kF32Lanes, part);
      }
    });
  });
  float* sums = a.sums.as<float>();
  parallel_for(exec, 2 * cols, kBatchChannelGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double total = 0;
      for (int64_t block = 0; block < blocks.count; ++block) total += partial[block * 2 * cols + i];
      sums[i] = static_cast<float>(total);
    }
  });
  write_gradient(sums, a.dbias, a.accumulate_dbias);
  write_gradient(sums + cols, a.dgain, a.accumulate_dgain);
}

void batch_norm_sums_target(const Exec& exec, const BatchNormSumsArgs& a) {
  dispatch_float(a.dy.dtype, [&]<typename T>() { batch_norm_sums_typed<T>(exec, a); });
}

template <typename T>
void batch_norm_grad_typed(const Exec& exec, const BatchNormGradArgs& a) {
  const int64_t rows = a.dy.size(0), cols = a.dy.size(1);
  const T *dy = a.dy.as<T>(), *x = a.x.as<T>(), *gain = a.gain.as<T>();
  const T* y = a.y.defined() ? a.y.as<T>() : nullptr;
  const float *mean = a.mean.as<float>(), *rstd = a.rstd.as<float>();
  T* dx = a.dx.as<T>();
  T* d_residual = a.d_residual.defined() ? a.d_residual.as<T>() : nullptr;
  const bool fixed = !a.sums.defined();
  const float* sum_g = fixed ? nullptr : a.sums.as<float>();
  const auto inv_count = hn::Set(F32Tag(), fixed ? 0.f : 1.f / *a.count.as<float>());
  // Backward is dx = factor g - slope (x - mean) - level, with precomputed numbers per channel.
  float* factor = scratch<float>("batch_norm_grad", exec, 3 * cols);
  float *slope = factor + cols, *level = slope + cols;
  for_vectors(cols, [&](int64_t i, auto part) HWY_ATTR {
    const auto scale = load(rstd + i, part);
    const auto whole = hn::Mul(load(gain + i, part), scale);
    const auto mean_g = fixed ? hn::Zero(F32Tag()) : hn::Mul(load(sum_g + i, part), inv_count);
    const auto mean_gn =
        fixed ? hn::Zero(F32Tag()) : hn::Mul(load(sum_g + cols + i, part), inv_count);
    store(whole, factor + i, part);
    store(hn::Mul(whole, hn::Mul(scale, mean_gn)), slope + i, part);
    store(hn::Mul(whole, mean_g), level + i, part);
  });
  parallel_for(exec, rows, kBatchNormGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * cols; at < end * cols; at += cols) {
      for_vectors(cols, [&](int64_t i, auto part) HWY_ATTR {
        const auto g = masked_gradient(dy + at + i, y == nullptr ? y : y + at + i, part);
        const auto centered = hn::Sub(load(x + at + i, part), load(mean + i, part));
        const auto rest = hn::MulAdd(centered, load(slope + i, part), load(level + i, part));
        store(hn::MulSub(load(factor + i, part), g, rest), dx + at + i, part);
        if (d_residual != nullptr) store(g, d_residual + at + i, part);
      });
    }
  });
}

void batch_norm_grad_target(const Exec& exec, const BatchNormGradArgs& a) {
  dispatch_float(a.dy.dtype, [&]<typename T>() { batch_norm_grad_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(batch_moments_target);
HWY_EXPORT(batch_norm_target);
HWY_EXPORT(batch_norm_sums_target);
HWY_EXPORT(batch_norm_grad_target);

template <>
void cpu::run(const Exec& exec, const BatchMomentsArgs& a) {
  HWY_DYNAMIC_DISPATCH(batch_moments_target)(exec, a);
}

// The merge is not vectorised, because it handles only a few numbers per channel, in f64.
template <>
void cpu::run(const Exec&, const BatchMergeArgs& a) {
  const int64_t sets = a.moments.size(0), channels = a.mean.numel(), width = 2 * channels + 1;
  const float* moments = a.moments.as<float>();
  double rows = 0;
  for (int64_t set = 0; set < sets; ++set) rows += moments[set * width + 2 * channels];
  *a.count.as<float>() = static_cast<float>(rows);
  const bool moves = a.running_mean.defined();
  const double momentum = a.momentum;
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0, squares = 0, count = 0;
    for (int64_t set = 0; set < sets; ++set) {
      const float* of = moments + set * width;
      const double size = of[2 * channels];
      if (size == 0) continue;
      const double delta = of[c] - mean, share = size / (count + size);
      mean += delta * share;
      squares += of[channels + c] + delta * delta * count * share;
      count += size;
    }
    const double variance = rows > 0 ? squares / rows : 0;
    a.mean.as<float>()[c] = static_cast<float>(mean);
    a.rstd.as<float>()[c] = static_cast<float>(1 / std::sqrt(variance + double{a.eps}));
    if (!moves || rows == 0) continue;
    const auto move = [momentum](float& running, double to) {
      running = static_cast<float>((1 - momentum) * running + momentum * to);
    };
    move(a.running_mean.as<float>()[c], mean);
    if (rows > 1) move(a.running_variance.as<float>()[c], squares / (rows - 1));
  }
}

template <>
void cpu::run(const Exec& exec, const BatchNormArgs& a) {
  HWY_DYNAMIC_DISPATCH(batch_norm_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const BatchNormSumsArgs& a) {
  HWY_DYNAMIC_DISPATCH(batch_norm_sums_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const BatchNormGradArgs& a) {
  HWY_DYNAMIC_DISPATCH(batch_norm_grad_target)(exec, a);
}

}  // namespace shale::kernels
#endif
