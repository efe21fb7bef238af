#pragma once

// Inputs and f64 references for the tests of layer norm and RMS norm.

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "shale/test/support/kernels.h"

namespace shale::test {

using Doubles = std::vector<double>;

// RMS norm is layer norm with a mean of 0.
enum class Norm { kLayer, kRms };

constexpr float kNormEps = 1e-5f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Cases: no rows, one element, less than a vector, ragged, exact vectors, many row blocks. For
// GPUs: rows of one pack per lane, of several packs per lane, of a whole block (2048 f32 or 4096
// 16-bit elements fill a queue of exactly 48 KiB), rows that fill the capacity of a block on some
// GPUs, and larger rows.
inline const std::vector<std::pair<int64_t, int64_t>> kNormSizes = {
    {0, 8},    {1, 1},   {2, 5},    {3, 31},   {4, 32},   {5, 1000}, {67, 64},  {400, 37},
    {40, 256}, {3, 768}, {3, 1600}, {2, 2048}, {2, 4096}, {1, 4104}, {1, 8192}, {1, 8208},
    {5, 12288}, {9, 16392}};

// ---- Forward; `round` is applied where a kernel rounds, `round_out` at its outputs ----

struct NormInputs {
  Doubles x, residual, gain, bias;  // residual and bias may be empty
};
struct NormResult {
  Doubles sum, y, mean, rstd;
};

template <typename Round, typename RoundOut>
NormResult ref_norm_fwd(Norm norm, const NormInputs& in, Round round, RoundOut round_out) {
  const size_t cols = in.gain.size();
  NormResult out;
  for (size_t begin = 0; begin < in.x.size(); begin += cols) {
    double total = 0, squares = 0;
    Doubles s(cols);
    for (size_t c = 0; c < cols; ++c) {
      const double x = in.x[begin + c];
      s[c] = in.residual.empty() ? x : round_out(x + in.residual[begin + c]);
      total += s[c];
    }
    const double mean = norm == Norm::kRms ? 0 : round(total / double(cols));
    for (const double v : s) squares += round(v - mean) * round(v - mean);
    const double variance = round(squares / double(cols));
    const double rstd = round(1 / std::sqrt(round(variance + double{kNormEps})));
    for (size_t c = 0; c < cols; ++c) {
      const double normed = round(round(s[c] - mean) * rstd);
      out.y.push_back(round_out(normed * in.gain[c] + (in.bias.empty() ? 0 : in.bias[c])));
    }
    out.sum.insert(out.sum.end(), s.begin(), s.end());
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

// ---- Backward ----

template <typename T>
struct NormBwdCase {
  std::vector<T> dy, s, gain, d_sum;  // d_sum may be empty
  std::vector<float> mean, rstd;      // statistics of s; for RMS norm the means are 0
};

template <typename T>
NormBwdCase<T> make_norm_bwd_case(Norm norm, int64_t rows, int64_t cols, bool with_d_sum) {
  NormBwdCase<T> c = {.dy = randn<T>(rows * cols, 1),
                      .s = randn<T>(rows * cols, 2, 0.5, 2),
                      .gain = randn<T>(cols, 3, 1, 0.2),
                      .d_sum = with_d_sum ? randn<T>(rows * cols, 4) : std::vector<T>(),
                      .mean = {},
                      .rstd = {}};
  const NormInputs in = {.x = to_f64(c.s), .residual = {}, .gain = to_f64(c.gain), .bias = {}};
  const NormResult fwd = ref_norm_fwd(norm, in, Exact(), Exact());
  c.mean.assign(fwd.mean.begin(), fwd.mean.end());
  c.rstd.assign(fwd.rstd.begin(), fwd.rstd.end());
  return c;
}

struct NormGradients {
  Doubles dx, dgain, dbias;
};

template <typename T, typename Round, typename RoundOut>
NormGradients ref_norm_bwd(Norm norm, const NormBwdCase<T>& at, Round round, RoundOut round_out) {
  const Doubles dy = to_f64(at.dy), s = to_f64(at.s), gain = to_f64(at.gain);
  const Doubles d_sum = to_f64(at.d_sum), means = to_f64(at.mean), rstds = to_f64(at.rstd);
  const size_t cols = gain.size();
  NormGradients out = {.dx = {}, .dgain = Doubles(cols), .dbias = Doubles(cols)};
  for (size_t r = 0; r < rstds.size(); ++r) {
    const size_t row = r * cols;
    const double mean = means[r], rstd = rstds[r];
    const auto normed = [&](size_t c) { return round(round(s[row + c] - mean) * rstd); };
    double sum_g = 0, sum_gn = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double g = round(dy[row + c] * gain[c]);
      sum_g += g;
      sum_gn += g * normed(c);
      out.dgain[c] = round(out.dgain[c] + dy[row + c] * normed(c));
      out.dbias[c] = round(out.dbias[c] + dy[row + c]);
    }
    const double mean_g = norm == Norm::kRms ? 0 : round(sum_g / double(cols));
    const double mean_gn = round(sum_gn / double(cols));
    for (size_t c = 0; c < cols; ++c) {
      const double g = round(dy[row + c] * gain[c]);
      const double inner = round(round(g - mean_g) - normed(c) * mean_gn);
      out.dx.push_back(round_out(rstd * inner + (d_sum.empty() ? 0 : d_sum[row + c])));
    }
  }
  return out;
}

// Returns gradients of the loss sum(dy * y) by central differences, with an error of h^2. There is
// none for the bias, which enters linearly.
inline NormGradients norm_differences(Norm norm, const NormBwdCase<float>& at) {
  NormInputs in = {.x = to_f64(at.s), .residual = {}, .gain = to_f64(at.gain), .bias = {}};
  const auto loss = [&] {
    const NormResult out = ref_norm_fwd(norm, in, Exact(), Exact());
    double total = 0;
    for (size_t i = 0; i < out.y.size(); ++i) total += double(at.dy[i]) * out.y[i];
    return total;
  };
  const auto differences = [&](Doubles& values) {
    constexpr double h = 1e-5;
    Doubles slopes;
    for (double& value : values) {
      const double start = value;
      value = start + h;
      const double up = loss();
      value = start - h;
      slopes.push_back((up - loss()) / (2 * h));
      value = start;
    }
    return slopes;
  };
  return {.dx = differences(in.x), .dgain = differences(in.gain), .dbias = {}};
}

}  // namespace shale::test
