#include "kernels/norm.h"

#include <cmath>
#include <functional>
#include <limits>

#include "test/support/catch.h"
#include "test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;

// ---- References in f64; `round` is applied where the kernel rounds, `round_out` at its outputs
// ----

struct FwdResult {
  Doubles sum, y, mean, rstd;
};

template <typename Round, typename RoundOut>
FwdResult ref_fwd(const Doubles& x, const Doubles& residual, const Doubles& gain,
                  const Doubles& bias, size_t cols, double eps, Round round, RoundOut round_out) {
  FwdResult out;
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double total = 0, squares = 0;
    Doubles s(cols);
    for (size_t c = 0; c < cols; ++c) {
      s[c] = residual.empty() ? x[begin + c] : round_out(x[begin + c] + residual[begin + c]);
      total += s[c];
    }
    const double mean = round(total / double(cols));
    for (const double v : s) squares += round(v - mean) * round(v - mean);
    const double rstd = round(1 / std::sqrt(round(round(squares / double(cols)) + eps)));
    for (size_t c = 0; c < cols; ++c) {
      const double normed = round(round(s[c] - mean) * rstd);
      out.y.push_back(round_out(normed * gain[c] + (bias.empty() ? 0 : bias[c])));
    }
    out.sum.insert(out.sum.end(), s.begin(), s.end());
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

struct BwdResult {
  Doubles dx, dgain, dbias;
};

template <typename Round, typename RoundOut>
BwdResult ref_bwd(const Doubles& dy, const Doubles& s, const Doubles& gain, const Doubles& mean,
                  const Doubles& rstd, const Doubles& d_sum, Round round, RoundOut round_out) {
  const size_t cols = gain.size();
  BwdResult out = {.dx = {}, .dgain = Doubles(cols), .dbias = Doubles(cols)};
  for (size_t r = 0; r < mean.size(); ++r) {
    const size_t at = r * cols;
    const auto normed = [&](size_t c) { return round(round(s[at + c] - mean[r]) * rstd[r]); };
    double sum_g = 0, sum_gn = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double g = round(dy[at + c] * gain[c]);
      sum_g += g;
      sum_gn += g * normed(c);
      out.dgain[c] = round(out.dgain[c] + dy[at + c] * normed(c));
      out.dbias[c] = round(out.dbias[c] + dy[at + c]);
    }
    const double mean_g = round(sum_g / double(cols)), mean_gn = round(sum_gn / double(cols));
    for (size_t c = 0; c < cols; ++c) {
      const double g = round(dy[at + c] * gain[c]);
      const double inner = round(round(g - mean_g) - normed(c) * mean_gn);
      out.dx.push_back(round_out(rstd[r] * inner + (d_sum.empty() ? 0 : d_sum[at + c])));
    }
  }
  return out;
}

// ---- Running the kernels ----

template <typename T>
struct FwdRun {
  std::vector<T> sum, y;
  std::vector<float> mean, rstd;
  bool intact = true;
};

template <typename T>
FwdRun<T> run_fwd(const Exec& exec, const std::vector<T>& x, const std::vector<T>& residual,
                  const std::vector<T>& gain, const std::vector<T>& bias, float eps = 1e-5f) {
  const auto cols = int64_t(gain.size()), rows = int64_t(x.size()) / cols;
  const DeviceArray<T> dx(exec, x), dr(exec, residual), dg(exec, gain), db(exec, bias);
  const DeviceArray<T> sum(exec, rows * cols), y(exec, rows * cols);
  const DeviceArray<float> mean(exec, rows), rstd(exec, rows);
  const Shape shape = {rows, cols};
  const bool with_residual = !residual.empty();
  kernels::layer_norm_fwd(exec, {.x = dx.view(shape),
                                 .residual = with_residual ? dr.view(shape) : View(),
                                 .sum = with_residual ? sum.view(shape) : View(),
                                 .gain = dg.view(),
                                 .bias = bias.empty() ? View() : db.view(),
                                 .y = y.view(shape),
                                 .mean = mean.view(),
                                 .rstd = rstd.view(),
                                 .eps = eps});
  return {sum.download(), y.download(), mean.download(), rstd.download(),
          sum.margins_intact() && y.margins_intact() && mean.margins_intact()};
}

template <typename T>
struct BwdCase {
  std::vector<T> dy, s, gain;
  std::vector<float> mean, rstd;
  std::vector<T> d_sum;
};

template <typename T>
struct BwdRun {
  std::vector<T> dx;
  std::vector<float> dgain, dbias;
};

template <typename T>
BwdCase<T> make_bwd_case(int64_t rows, int64_t cols, bool with_d_sum) {
  BwdCase<T> c = {.dy = test::randn<T>(rows * cols, 1),
                  .s = test::randn<T>(rows * cols, 2, 0.5, 2),
                  .gain = test::randn<T>(cols, 3, 1, 0.2),
                  .mean = {},
                  .rstd = {},
                  .d_sum = with_d_sum ? test::randn<T>(rows * cols, 4) : std::vector<T>()};
  const FwdResult fwd = ref_fwd(test::to_f64(c.s), {}, test::to_f64(c.gain), {}, size_t(cols), 1e-5,
                                test::Exact(), test::Exact());
  c.mean.assign(fwd.mean.begin(), fwd.mean.end());
  c.rstd.assign(fwd.rstd.begin(), fwd.rstd.end());
  return c;
}

// `start`: dgain and dbias begin with this value and are accumulated into; NaN: they are set.
template <typename T>
BwdRun<T> run_bwd(const Exec& exec, const BwdCase<T>& c, float start) {
  const auto cols = int64_t(c.gain.size()), rows = int64_t(c.mean.size());
  const DeviceArray<T> dy(exec, c.dy), s(exec, c.s), gain(exec, c.gain), d_sum(exec, c.d_sum);
  const DeviceArray<T> dx(exec, rows * cols);
  const DeviceArray<float> mean(exec, c.mean), rstd(exec, c.rstd);
  const DeviceArray<float> dgain(exec, std::vector<float>(size_t(cols), start));
  const DeviceArray<float> dbias(exec, std::vector<float>(size_t(cols), start));
  const Shape shape = {rows, cols};
  kernels::layer_norm_bwd(exec, {.dy = dy.view(shape),
                                 .s = s.view(shape),
                                 .gain = gain.view(),
                                 .mean = mean.view(),
                                 .rstd = rstd.view(),
                                 .d_sum = c.d_sum.empty() ? View() : d_sum.view(shape),
                                 .dx = dx.view(shape),
                                 .dgain = dgain.view(),
                                 .dbias = dbias.view(),
                                 .accumulate_dgain = !std::isnan(start),
                                 .accumulate_dbias = !std::isnan(start)});
  CHECK((dx.margins_intact() && dgain.margins_intact() && dbias.margins_intact()));
  return {dx.download(), dgain.download(), dbias.download()};
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Sizes = std::pair<int64_t, int64_t>;
// No rows, one element, less than a vector, ragged, exact vectors, many blocks of rows; on a GPU a
// row of one pack a lane, of several, of a block, and of more than a block holds.
const std::vector<Sizes> kSizes = {{0, 8},    {1, 1},    {2, 5},    {3, 31},   {4, 32},
                                   {5, 1000}, {67, 64},  {400, 37}, {40, 256}, {3, 768},
                                   {3, 1600}, {1, 4104}, {1, 8208}};

}  // namespace

TEMPLATE_TEST_CASE("layer_norm_fwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(kSizes));
  const bool with_residual = GENERATE(false, true);
  const bool with_bias = GENERATE(false, true);
  const auto x = test::randn<TestType>(rows * cols, 1, 3, 2);
  const auto gain = test::randn<TestType>(cols, 3, 1, 0.2);
  const auto residual =
      with_residual ? test::randn<TestType>(rows * cols, 2) : std::vector<TestType>();
  const auto bias = with_bias ? test::randn<TestType>(cols, 4) : std::vector<TestType>();
  const auto reference = [&](auto round, auto round_out) {
    return ref_fwd(test::to_f64(x), test::to_f64(residual), test::to_f64(gain), test::to_f64(bias),
                   size_t(cols), double{1e-5f}, round, round_out);
  };
  // y is a function of the rounded sum, which the exact reference has to see too.
  const auto rounded = reference(test::RoundTo<float>(), test::RoundTo<TestType>());
  const auto exact = ref_fwd(rounded.sum, {}, test::to_f64(gain), test::to_f64(bias), size_t(cols),
                             double{1e-5f}, test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_fwd})) {
    CAPTURE(exec.device.index, rows, cols, with_residual, with_bias);
    const auto got = run_fwd(exec, x, residual, gain, bias);
    CHECK(got.intact);
    if (with_residual) CHECK(test::max_error(got.sum, rounded.sum) == 0);
    // One rounding to T, which the rounded reference may have missed by luck in a small case, and
    // f32 sums.
    CHECK(test::error_ratio(got.y, exact.y, rounded.y, 1) <= 1);
    CHECK(test::error_ratio(got.mean, exact.mean, rounded.mean, 2) <= 1);
    CHECK(test::error_ratio(got.rstd, exact.rstd, rounded.rstd, 4) <= 1);
  }
}

TEST_CASE("layer_norm_fwd stays accurate when the mean dwarfs the deviations", "[kernels][norm]") {
  const auto x = test::randn<float>(4 * 768, 1, 1000, 1);
  const std::vector<float> gain(768, 1.f);
  const auto exact = ref_fwd(test::to_f64(x), {}, test::to_f64(gain), {}, 768, double{1e-5f},
                             test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_fwd})) {
    // The f32 mean is off by half an ulp of 1000, 3e-5 of a standard deviation; so is y.
    CHECK(test::max_error(run_fwd<float>(exec, x, {}, gain, {}).y, exact.y) <= 4e-5);
  }
}

TEST_CASE("layer_norm_fwd may write the sum over x or over the residual", "[kernels][norm]") {
  const int64_t rows = 5, cols = 37;
  const auto x = test::randn<float>(rows * cols, 1), residual = test::randn<float>(rows * cols, 2);
  const auto gain = test::randn<float>(cols, 3);
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_fwd})) {
    const auto want = run_fwd<float>(exec, x, residual, gain, {});
    for (const bool over_x : {false, true}) {
      const DeviceArray<float> a(exec, x), b(exec, residual), g(exec, gain);
      const DeviceArray<float> y(exec, rows * cols), mean(exec, rows), rstd(exec, rows);
      const Shape shape = {rows, cols};
      const auto& sum = over_x ? a : b;
      kernels::layer_norm_fwd(exec, {.x = a.view(shape),
                                     .residual = b.view(shape),
                                     .sum = sum.view(shape),
                                     .gain = g.view(),
                                     .bias = {},
                                     .y = y.view(shape),
                                     .mean = mean.view(),
                                     .rstd = rstd.view()});
      CHECK(test::same_bits(sum.download(), want.sum));
      CHECK(test::same_bits(y.download(), want.y));
    }
  }
}

TEST_CASE("a NaN in a row spoils that row and no other", "[kernels][norm]") {
  auto x = test::randn<float>(3 * 50, 1);
  x[50 + 49] = kNan;
  const std::vector<float> gain(50, 1.f);
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_fwd})) {
    const auto got = run_fwd<float>(exec, x, {}, gain, {});
    for (size_t i = 0; i < got.y.size(); ++i) CHECK(std::isnan(got.y[i]) == (i / 50 == 1));
    CHECK(std::isnan(got.rstd[1]));
  }
}

TEMPLATE_TEST_CASE("layer_norm_bwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(kSizes));
  const bool with_d_sum = GENERATE(false, true);
  const auto c = make_bwd_case<TestType>(rows, cols, with_d_sum);
  const auto reference = [&](auto round, auto round_out) {
    return ref_bwd(test::to_f64(c.dy), test::to_f64(c.s), test::to_f64(c.gain),
                   test::to_f64(c.mean), test::to_f64(c.rstd), test::to_f64(c.d_sum), round,
                   round_out);
  };
  const auto exact = reference(test::Exact(), test::Exact());
  const auto rounded = reference(test::RoundTo<float>(), test::RoundTo<TestType>());
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_bwd})) {
    CAPTURE(rows, cols, with_d_sum);
    const auto got = run_bwd(exec, c, kNan);
    CHECK(test::error_ratio(got.dx, exact.dx, rounded.dx, 2) <= 1);
    CHECK(test::error_ratio(got.dgain, exact.dgain, rounded.dgain, 4) <= 1);
    CHECK(test::error_ratio(got.dbias, exact.dbias, rounded.dbias, 4) <= 1);
    const auto added = run_bwd(exec, c, 1.f);
    for (size_t i = 0; i < got.dgain.size(); ++i) {
      CHECK(added.dgain[i] == 1.f + got.dgain[i]);
      CHECK(added.dbias[i] == 1.f + got.dbias[i]);
    }
  }
}

TEST_CASE("layer_norm_bwd agrees with finite differences", "[kernels][norm]") {
  const int64_t rows = 3, cols = 7;
  const auto c = make_bwd_case<float>(rows, cols, false);
  // The loss is sum(dy * y); the bias enters linearly, so its gradient needs no differences.
  const auto loss = [&](const Doubles& s, const Doubles& gain) {
    const auto out = ref_fwd(s, {}, gain, {}, size_t(cols), 1e-5, test::Exact(), test::Exact());
    double total = 0;
    for (size_t i = 0; i < out.y.size(); ++i) total += double(c.dy[i]) * out.y[i];
    return total;
  };
  const auto difference = [](Doubles& values, size_t i, const std::function<double()>& f) {
    const double h = 1e-5, start = values[i];
    values[i] = start + h;
    const double up = f();
    values[i] = start - h;
    const double down = f();
    values[i] = start;
    return (up - down) / (2 * h);
  };
  Doubles s = test::to_f64(c.s), gain = test::to_f64(c.gain), want_dx, want_dgain;
  for (size_t i = 0; i < s.size(); ++i) {
    want_dx.push_back(difference(s, i, [&] { return loss(s, gain); }));
  }
  for (size_t i = 0; i < gain.size(); ++i) {
    want_dgain.push_back(difference(gain, i, [&] { return loss(s, gain); }));
  }
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_bwd})) {
    const auto got = run_bwd(exec, c, kNan);
    // Differences are good to h^2; f32 to some ulps of numbers up to 3.
    CHECK(test::max_error(got.dx, want_dx) < 2e-6);
    CHECK(test::max_error(got.dgain, want_dgain) < 2e-6);
  }
}

TEST_CASE("layer norm has the same bits for any number of threads", "[kernels][norm]") {
  const auto c = make_bwd_case<float>(300, 65, true);
  const Exec& exec = test::devices()[0];
  CHECK(test::same_bits_for_any_threads(
      exec, [&](const Exec& e) { return run_fwd<float>(e, c.dy, c.s, c.gain, c.gain).y; }));
  CHECK(test::same_bits_for_any_threads(exec,
                                        [&](const Exec& e) { return run_bwd(e, c, kNan).dgain; }));
  CHECK(test::same_bits_for_any_threads(exec,
                                        [&](const Exec& e) { return run_bwd(e, c, kNan).dbias; }));
  CHECK(
      test::same_bits_for_any_threads(exec, [&](const Exec& e) { return run_bwd(e, c, kNan).dx; }));
}

TEST_CASE("layer norm names the argument that is wrong", "[kernels][norm]") {
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_fwd})) {
    const DeviceArray<float> x(exec, 12), gain(exec, 4), rows(exec, 3);
    const DeviceArray<bf16> other(exec, 4);
    kernels::LayerNormFwdArgs good = {.x = x.view({3, 4}),
                                      .residual = {},
                                      .sum = {},
                                      .gain = gain.view(),
                                      .bias = {},
                                      .y = x.view({3, 4}),
                                      .mean = rows.view(),
                                      .rstd = rows.view()};
    auto bad = good;
    bad.gain = rows.view();
    const auto run = [&] { kernels::layer_norm_fwd(exec, bad); };
    CHECK(test::message_of<ShapeError>(run) == "layer_norm_fwd: gain is fp32[3], want shape [4]");
    bad = good;
    bad.gain = other.view();
    CHECK(test::message_of<DTypeError>(run) == "layer_norm_fwd: gain is bf16[4], want fp32");
    bad = good;
    bad.residual = x.view({3, 4});
    CHECK(test::message_of<ShapeError>(run) == "layer_norm_fwd: sum is missing");
    bad = good;
    bad.mean = gain.view();
    CHECK(test::message_of<ShapeError>(run) == "layer_norm_fwd: mean is fp32[4], want 3 rows");
  }
}

}  // namespace shale
