#include <cmath>
#include <limits>

#include "kernels/norm.h"
#include "test/support/catch.h"
#include "test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kEps = 1e-5f;

// ---- References in f64; `round` is applied where the kernel rounds, `round_out` at its outputs
// ----

struct FwdResult {
  Doubles sum, y, rstd;
};

template <typename Round, typename RoundOut>
FwdResult ref_fwd(const Doubles& x, const Doubles& residual, const Doubles& gain, Round round,
                  RoundOut round_out) {
  const size_t cols = gain.size();
  FwdResult out;
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double squares = 0;
    Doubles s(cols);
    for (size_t c = 0; c < cols; ++c) {
      s[c] = residual.empty() ? x[begin + c] : round_out(x[begin + c] + residual[begin + c]);
      squares += round(s[c] * s[c]);
    }
    const double rstd = round(1 / std::sqrt(round(round(squares / double(cols)) + double{kEps})));
    for (size_t c = 0; c < cols; ++c) out.y.push_back(round_out(round(s[c] * rstd) * gain[c]));
    out.sum.insert(out.sum.end(), s.begin(), s.end());
    out.rstd.push_back(rstd);
  }
  return out;
}

struct BwdResult {
  Doubles dx, dgain;
};

template <typename Round, typename RoundOut>
BwdResult ref_bwd(const Doubles& dy, const Doubles& s, const Doubles& gain, const Doubles& rstd,
                  const Doubles& d_sum, Round round, RoundOut round_out) {
  const size_t cols = gain.size();
  BwdResult out = {.dx = {}, .dgain = Doubles(cols)};
  for (size_t r = 0; r < rstd.size(); ++r) {
    const size_t at = r * cols;
    double sum = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double normed = round(s[at + c] * rstd[r]);
      sum += round(dy[at + c] * gain[c]) * normed;
      out.dgain[c] = round(out.dgain[c] + dy[at + c] * normed);
    }
    const double mean = round(sum / double(cols));
    for (size_t c = 0; c < cols; ++c) {
      const double inner = round(round(dy[at + c] * gain[c]) - round(s[at + c] * rstd[r]) * mean);
      out.dx.push_back(round_out(rstd[r] * inner + (d_sum.empty() ? 0 : d_sum[at + c])));
    }
  }
  return out;
}

// ---- Running the kernels ----

template <typename T>
struct FwdRun {
  std::vector<T> sum, y;
  std::vector<float> rstd;
};

template <typename T>
FwdRun<T> run_fwd(const Exec& exec, const std::vector<T>& x, const std::vector<T>& residual,
                  const std::vector<T>& gain) {
  const auto cols = int64_t(gain.size()), rows = int64_t(x.size()) / cols;
  const DeviceArray<T> d_x(exec, x), d_residual(exec, residual), d_gain(exec, gain);
  const DeviceArray<T> sum(exec, rows * cols), y(exec, rows * cols);
  const DeviceArray<float> rstd(exec, rows);
  const Shape shape = {rows, cols};
  kernels::rms_norm_fwd(exec, {.x = d_x.view(shape),
                               .residual = residual.empty() ? View() : d_residual.view(shape),
                               .sum = residual.empty() ? View() : sum.view(shape),
                               .gain = d_gain.view(),
                               .y = y.view(shape),
                               .rstd = rstd.view(),
                               .eps = kEps});
  CHECK((sum.margins_intact() && y.margins_intact() && rstd.margins_intact()));
  return {sum.download(), y.download(), rstd.download()};
}

template <typename T>
struct BwdCase {
  std::vector<T> dy, s, gain;
  std::vector<float> rstd;
  std::vector<T> d_sum;
};

template <typename T>
BwdCase<T> make_bwd_case(int64_t rows, int64_t cols, bool with_d_sum) {
  BwdCase<T> c = {.dy = test::randn<T>(rows * cols, 1),
                  .s = test::randn<T>(rows * cols, 2, 0.5, 2),
                  .gain = test::randn<T>(cols, 3, 1, 0.2),
                  .rstd = {},
                  .d_sum = with_d_sum ? test::randn<T>(rows * cols, 4) : std::vector<T>()};
  const FwdResult fwd =
      ref_fwd(test::to_f64(c.s), {}, test::to_f64(c.gain), test::Exact(), test::Exact());
  c.rstd.assign(fwd.rstd.begin(), fwd.rstd.end());
  return c;
}

template <typename T>
struct BwdRun {
  std::vector<T> dx;
  std::vector<float> dgain;
};

// `start`: dgain begins with this value and is accumulated into; NaN: it is set.
template <typename T>
BwdRun<T> run_bwd(const Exec& exec, const BwdCase<T>& c, float start) {
  const auto cols = int64_t(c.gain.size()), rows = int64_t(c.rstd.size());
  const DeviceArray<T> dy(exec, c.dy), s(exec, c.s), gain(exec, c.gain), d_sum(exec, c.d_sum);
  const DeviceArray<T> dx(exec, rows * cols);
  const DeviceArray<float> rstd(exec, c.rstd);
  const DeviceArray<float> dgain(exec, std::vector<float>(size_t(cols), start));
  const Shape shape = {rows, cols};
  kernels::rms_norm_bwd(exec, {.dy = dy.view(shape),
                               .s = s.view(shape),
                               .gain = gain.view(),
                               .rstd = rstd.view(),
                               .d_sum = c.d_sum.empty() ? View() : d_sum.view(shape),
                               .dx = dx.view(shape),
                               .dgain = dgain.view(),
                               .accumulate_dgain = !std::isnan(start)});
  CHECK((dx.margins_intact() && dgain.margins_intact()));
  return {dx.download(), dgain.download()};
}

using Sizes = std::pair<int64_t, int64_t>;
// As for layer norm: no rows, one element, ragged, exact vectors, each way a GPU holds a row.
const std::vector<Sizes> kSizes = {{0, 8},    {1, 1},   {3, 31},   {4, 32},   {300, 37},
                                   {40, 256}, {3, 768}, {3, 1600}, {1, 4104}, {1, 8208}};

}  // namespace

TEMPLATE_TEST_CASE("rms_norm_fwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(kSizes));
  const bool with_residual = GENERATE(false, true);
  const auto x = test::randn<TestType>(rows * cols, 1, 0.5, 2);
  const auto gain = test::randn<TestType>(cols, 3, 1, 0.2);
  const auto residual =
      with_residual ? test::randn<TestType>(rows * cols, 2) : std::vector<TestType>();
  const auto rounded = ref_fwd(test::to_f64(x), test::to_f64(residual), test::to_f64(gain),
                               test::RoundTo<float>(), test::RoundTo<TestType>());
  // y is a function of the rounded sum, which the exact reference has to see too.
  const auto exact = ref_fwd(rounded.sum, {}, test::to_f64(gain), test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_with({&kernels::rms_norm_fwd})) {
    CAPTURE(rows, cols, with_residual);
    const auto got = run_fwd(exec, x, residual, gain);
    if (with_residual) CHECK(test::max_error(got.sum, rounded.sum) == 0);
    // One rounding to T, which the rounded reference may have missed by luck in a small case, and
    // f32 sums.
    CHECK(test::error_ratio(got.y, exact.y, rounded.y, 1) <= 1);
    CHECK(test::error_ratio(got.rstd, exact.rstd, rounded.rstd, 4) <= 1);
  }
}

TEMPLATE_TEST_CASE("rms_norm_bwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(kSizes));
  const bool with_d_sum = GENERATE(false, true);
  const auto c = make_bwd_case<TestType>(rows, cols, with_d_sum);
  const auto reference = [&](auto round, auto round_out) {
    return ref_bwd(test::to_f64(c.dy), test::to_f64(c.s), test::to_f64(c.gain),
                   test::to_f64(c.rstd), test::to_f64(c.d_sum), round, round_out);
  };
  const auto exact = reference(test::Exact(), test::Exact());
  const auto rounded = reference(test::RoundTo<float>(), test::RoundTo<TestType>());
  for (const Exec& exec : test::devices_with({&kernels::rms_norm_bwd})) {
    CAPTURE(rows, cols, with_d_sum);
    const auto got = run_bwd(exec, c, kNan);
    CHECK(test::error_ratio(got.dx, exact.dx, rounded.dx, 2) <= 1);
    CHECK(test::error_ratio(got.dgain, exact.dgain, rounded.dgain, 4) <= 1);
    const auto added = run_bwd(exec, c, 1.f);
    for (size_t i = 0; i < got.dgain.size(); ++i) CHECK(added.dgain[i] == 1.f + got.dgain[i]);
  }
}

TEST_CASE("rms_norm_bwd agrees with finite differences", "[kernels][norm]") {
  const auto c = make_bwd_case<float>(3, 7, false);
  const auto loss = [&](const Doubles& s) {
    const auto out = ref_fwd(s, {}, test::to_f64(c.gain), test::Exact(), test::Exact());
    double total = 0;
    for (size_t i = 0; i < out.y.size(); ++i) total += double(c.dy[i]) * out.y[i];
    return total;
  };
  Doubles s = test::to_f64(c.s), want;
  for (double& value : s) {
    const double h = 1e-5, start = value;
    value = start + h;
    const double up = loss(s);
    value = start - h;
    want.push_back((up - loss(s)) / (2 * h));
    value = start;
  }
  for (const Exec& exec : test::devices_with({&kernels::rms_norm_bwd})) {
    // Differences are good to h^2; f32 to some ulps of numbers up to 3.
    CHECK(test::max_error(run_bwd(exec, c, kNan).dx, want) < 2e-6);
  }
}

TEST_CASE("rms norm keeps a NaN in its row and names the argument that is wrong",
          "[kernels][norm]") {
  auto x = test::randn<float>(3 * 50, 1);
  x[50 + 49] = kNan;
  const std::vector<float> gain(50, 1.f);
  for (const Exec& exec : test::devices_with({&kernels::rms_norm_fwd})) {
    const auto got = run_fwd<float>(exec, x, {}, gain);
    for (size_t i = 0; i < got.y.size(); ++i) CHECK(std::isnan(got.y[i]) == (i / 50 == 1));
    const DeviceArray<float> a(exec, 12), four(exec, 4), three(exec, 3);
    CHECK(test::message_of<ShapeError>([&] {
            kernels::rms_norm_fwd(exec, {.x = a.view({3, 4}),
                                         .gain = three.view(),
                                         .y = a.view({3, 4}),
                                         .rstd = three.view()});
          }) == "rms_norm_fwd: gain is fp32[3], want shape [4]");
  }
}

}  // namespace shale
