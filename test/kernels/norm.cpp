#include "shale/kernels/norm.h"

#include <cmath>

#include "shale/test/kernels/norm_case.h"
#include "shale/test/support/all_limits.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using test::kNan;

constexpr auto kLayer = test::Norm::kLayer;

template <typename T>
struct FwdRun {
  std::vector<T> sum, y;
  std::vector<float> mean, rstd;
  bool intact = true;
};

template <typename T>
FwdRun<T> run_fwd(const Exec& exec, const std::vector<T>& x, const std::vector<T>& residual,
                  const std::vector<T>& gain, const std::vector<T>& bias) {
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
                                 .eps = test::kNormEps});
  return {sum.download(), y.download(), mean.download(), rstd.download(),
          sum.margins_intact() && y.margins_intact() && mean.margins_intact()};
}

template <typename T>
struct BwdRun {
  std::vector<T> dx;
  std::vector<float> dgain, dbias;
};

// Runs layer norm backward. If `start` is a number, dgain and dbias start from it and are
// accumulated into. If it is NaN, they are overwritten.
template <typename T>
BwdRun<T> run_bwd(const Exec& exec, const test::NormBwdCase<T>& c, float start) {
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

}  // namespace

TEMPLATE_TEST_CASE("layer_norm_fwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(test::kNormSizes));
  const bool with_residual = GENERATE(false, true);
  const bool with_bias = GENERATE(false, true);
  const auto x = test::randn<TestType>(rows * cols, 1, 3, 2);
  const auto gain = test::randn<TestType>(cols, 3, 1, 0.2);
  const auto residual =
      with_residual ? test::randn<TestType>(rows * cols, 2) : std::vector<TestType>();
  const auto bias = with_bias ? test::randn<TestType>(cols, 4) : std::vector<TestType>();
  test::NormInputs in = {.x = test::to_f64(x),
                         .residual = test::to_f64(residual),
                         .gain = test::to_f64(gain),
                         .bias = test::to_f64(bias)};
  const auto rounded =
      test::ref_norm_fwd(kLayer, in, test::RoundTo<float>(), test::RoundTo<TestType>());
  // y is computed from the rounded sum, so the exact reference must use the rounded sum too.
  in.x = rounded.sum;
  in.residual = {};
  const auto exact = test::ref_norm_fwd(kLayer, in, test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_of_all_limits({&kernels::layer_norm_fwd})) {
    CAPTURE(exec.device.index, rows, cols, with_residual, with_bias);
    const auto got = run_fwd(exec, x, residual, gain, bias);
    CHECK(got.intact);
    if (with_residual) CHECK(test::max_error(got.sum, rounded.sum) == 0);
    // The result has the rounding errors of f32 sums, and is then rounded to T. In a small case,
    // the rounded reference may by chance have no error.
    CHECK(test::error_ratio(got.y, exact.y, rounded.y, 1) <= 1);
    CHECK(test::error_ratio(got.mean, exact.mean, rounded.mean, 2) <= 1);
    CHECK(test::error_ratio(got.rstd, exact.rstd, rounded.rstd, 4) <= 1);
  }
}

TEST_CASE("layer_norm_fwd stays accurate when the mean dwarfs the deviations", "[kernels][norm]") {
  const auto x = test::randn<float>(4 * 768, 1, 1000, 1);
  const std::vector<float> gain(768, 1.f);
  const auto exact = test::ref_norm_fwd(
      kLayer, {.x = test::to_f64(x), .residual = {}, .gain = test::to_f64(gain), .bias = {}},
      test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_fwd})) {
    // For values near 1000, the mean has an error of half an f32 ulp, which is 3e-5 of a standard
    // deviation. y has the same error.
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
  const auto [rows, cols] = GENERATE(from_range(test::kNormSizes));
  const bool with_d_sum = GENERATE(false, true);
  const auto c = test::make_norm_bwd_case<TestType>(kLayer, rows, cols, with_d_sum);
  const auto exact = test::ref_norm_bwd(kLayer, c, test::Exact(), test::Exact());
  const auto rounded =
      test::ref_norm_bwd(kLayer, c, test::RoundTo<float>(), test::RoundTo<TestType>());
  for (const Exec& exec : test::devices_of_all_limits({&kernels::layer_norm_bwd})) {
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
  const auto c = test::make_norm_bwd_case<float>(kLayer, 3, 7, false);
  const auto want = test::norm_differences(kLayer, c);
  for (const Exec& exec : test::devices_with({&kernels::layer_norm_bwd})) {
    const auto got = run_bwd(exec, c, kNan);
    // Central differences have an error of h^2; f32 results have some ulps of numbers up to 3.
    CHECK(test::max_error(got.dx, want.dx) < 2e-6);
    CHECK(test::max_error(got.dgain, want.dgain) < 2e-6);
  }
}

TEST_CASE("layer norm has the same bits for any number of threads", "[kernels][norm]") {
  const auto c = test::make_norm_bwd_case<float>(kLayer, 300, 65, true);
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
    CHECK(test::message_of<ShapeError>(run) ==
          "layer_norm_fwd: gain is fp32[3], expected shape [4]");
    bad = good;
    bad.gain = other.view();
    CHECK(test::message_of<DTypeError>(run) == "layer_norm_fwd: gain is bf16[4], expected fp32");
    bad = good;
    bad.residual = x.view({3, 4});
    CHECK(test::message_of<ShapeError>(run) == "layer_norm_fwd: sum is missing");
    bad = good;
    bad.mean = gain.view();
    CHECK(test::message_of<ShapeError>(run) == "layer_norm_fwd: mean is fp32[4], expected 3 rows");
  }
}

}  // namespace shale
