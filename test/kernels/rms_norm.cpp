#include <cmath>

#include "shale/kernels/norm.h"
#include "shale/test/kernels/norm_case.h"
#include "shale/test/support/all_limits.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using test::kNan;

constexpr auto kRms = test::Norm::kRms;

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
                               .eps = test::kNormEps});
  CHECK((sum.margins_intact() && y.margins_intact() && rstd.margins_intact()));
  return {sum.download(), y.download(), rstd.download()};
}

template <typename T>
struct BwdRun {
  std::vector<T> dx;
  std::vector<float> dgain;
};

// Runs RMS norm backward. If `start` is a number, dgain starts from it and is accumulated into. If
// it is NaN, dgain is overwritten.
template <typename T>
BwdRun<T> run_bwd(const Exec& exec, const test::NormBwdCase<T>& c, float start) {
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

}  // namespace

TEMPLATE_TEST_CASE("rms_norm_fwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(test::kNormSizes));
  const bool with_residual = GENERATE(false, true);
  const auto x = test::randn<TestType>(rows * cols, 1, 0.5, 2);
  const auto gain = test::randn<TestType>(cols, 3, 1, 0.2);
  const auto residual =
      with_residual ? test::randn<TestType>(rows * cols, 2) : std::vector<TestType>();
  test::NormInputs in = {.x = test::to_f64(x),
                         .residual = test::to_f64(residual),
                         .gain = test::to_f64(gain),
                         .bias = {}};
  const auto rounded =
      test::ref_norm_fwd(kRms, in, test::RoundTo<float>(), test::RoundTo<TestType>());
  // y is computed from the rounded sum, so the exact reference must use the rounded sum too.
  in.x = rounded.sum;
  in.residual = {};
  const auto exact = test::ref_norm_fwd(kRms, in, test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_of_all_limits({&kernels::rms_norm_fwd})) {
    CAPTURE(rows, cols, with_residual);
    const auto got = run_fwd(exec, x, residual, gain);
    if (with_residual) CHECK(test::max_error(got.sum, rounded.sum) == 0);
    // The result is rounded in f32 sums and once to T. In a small case, the rounded reference may
    // by chance have no error.
    CHECK(test::error_ratio(got.y, exact.y, rounded.y, 1) <= 1);
    CHECK(test::error_ratio(got.rstd, exact.rstd, rounded.rstd, 4) <= 1);
  }
}

TEMPLATE_TEST_CASE("rms_norm_bwd agrees with f64 on every device", "[kernels][norm]", float, bf16,
                   f16) {
  const auto [rows, cols] = GENERATE(from_range(test::kNormSizes));
  const bool with_d_sum = GENERATE(false, true);
  const auto c = test::make_norm_bwd_case<TestType>(kRms, rows, cols, with_d_sum);
  const auto exact = test::ref_norm_bwd(kRms, c, test::Exact(), test::Exact());
  const auto rounded =
      test::ref_norm_bwd(kRms, c, test::RoundTo<float>(), test::RoundTo<TestType>());
  for (const Exec& exec : test::devices_of_all_limits({&kernels::rms_norm_bwd})) {
    CAPTURE(rows, cols, with_d_sum);
    const auto got = run_bwd(exec, c, kNan);
    CHECK(test::error_ratio(got.dx, exact.dx, rounded.dx, 2) <= 1);
    CHECK(test::error_ratio(got.dgain, exact.dgain, rounded.dgain, 4) <= 1);
    const auto added = run_bwd(exec, c, 1.f);
    for (size_t i = 0; i < got.dgain.size(); ++i) CHECK(added.dgain[i] == 1.f + got.dgain[i]);
  }
}

TEST_CASE("rms_norm_bwd agrees with finite differences", "[kernels][norm]") {
  const auto c = test::make_norm_bwd_case<float>(kRms, 3, 7, false);
  const auto want = test::norm_differences(kRms, c);
  for (const Exec& exec : test::devices_with({&kernels::rms_norm_bwd})) {
    // Central differences have an error of h^2; f32 results have some ulps of numbers up to 3.
    const auto got = run_bwd(exec, c, kNan);
    CHECK(test::max_error(got.dx, want.dx) < 2e-6);
    CHECK(test::max_error(got.dgain, want.dgain) < 2e-6);
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
          }) == "rms_norm_fwd: gain is fp32[3], expected shape [4]");
  }
}

}  // namespace shale
