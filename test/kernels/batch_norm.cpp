#include "shale/kernels/batch_norm.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;

constexpr float kEps = 1e-5f;

// Cases: one row; fewer channels than a vector; ragged; exact vectors; several row blocks; strips
// of four vectors; a strip of one vector with a ragged end.
const std::vector<std::pair<int64_t, int64_t>> kSizes = {{1, 1},   {2, 5},    {3, 31},   {40, 16},
                                                         {67, 64}, {1000, 7}, {1300, 48}, {40, 85}};

struct Moments {
  Doubles mean, squares;  // one value per channel
};

template <typename T>
Moments ref_moments(const std::vector<T>& x, int64_t cols) {
  const auto rows = double(int64_t(x.size()) / cols);
  Moments m{Doubles(size_t(cols)), Doubles(size_t(cols))};
  for (size_t i = 0; i < x.size(); ++i) m.mean[i % size_t(cols)] += test::to_f64(x[i]) / rows;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = test::to_f64(x[i]) - m.mean[i % size_t(cols)];
    m.squares[i % size_t(cols)] += d * d;
  }
  return m;
}

template <typename T>
std::vector<float> moments_of(const Exec& exec, const std::vector<T>& x, int64_t cols) {
  const DeviceArray<T> from(exec, x);
  const DeviceArray<float> moments(exec, 2 * cols + 1);
  kernels::batch_moments(
      exec, {.x = from.view({int64_t(x.size()) / cols, cols}), .moments = moments.view()});
  CHECK(moments.margins_intact());
  return moments.download();
}

struct Merged {
  std::vector<float> mean, rstd, running_mean, running_variance;
  float count = 0;
};

Merged merge(const Exec& exec, const std::vector<float>& moments, int64_t cols,
             const std::vector<float>& running_mean, const std::vector<float>& running_variance) {
  const int64_t width = 2 * cols + 1;
  const DeviceArray<float> from(exec, moments), mean(exec, cols), rstd(exec, cols), count(exec, 1);
  const DeviceArray<float> means(exec, running_mean), variances(exec, running_variance);
  kernels::batch_merge(exec, {.moments = from.view({int64_t(moments.size()) / width, width}),
                              .mean = mean.view(),
                              .rstd = rstd.view(),
                              .count = count.view(),
                              .running_mean = means.view(),
                              .running_variance = variances.view(),
                              .eps = kEps,
                              .momentum = 0.1f});
  return {mean.download(), rstd.download(), means.download(), variances.download(),
          count.download().front()};
}

}  // namespace

TEMPLATE_TEST_CASE("batch_moments agrees with f64", "[kernels][batch_norm]", float, bf16, f16) {
  const auto [rows, cols] = GENERATE(from_range(kSizes));
  // A mean much larger than the deviations must not affect them beyond the precision of T.
  const double mean = GENERATE(0.0, 30.0);
  const auto x = test::randn<TestType>(rows * cols, 1, mean, 2);
  const Moments want = ref_moments(x, cols);
  for (const Exec& exec : test::devices_with({&kernels::batch_moments})) {
    CAPTURE(rows, cols, mean);
    const std::vector<float> got = moments_of(exec, x, cols);
    REQUIRE(got.size() == size_t(2 * cols + 1));
    CHECK(got.back() == float(rows));
    for (size_t c = 0; c < size_t(cols); ++c) {
      // A block has rows / 64 values, at least 16. Its mean is a sum of at most 21 values. Each
      // addition rounds by half an ulp of the partial sum, and the sum of the deviations then
      // corrects the mean.
      CHECK(std::abs(got[c] - want.mean[c]) <= 4 * 0x1p-24 * (std::abs(mean) + 8));
      CHECK(std::abs(got[size_t(cols) + c] - want.squares[c]) <=
            32 * 0x1p-24 * (want.squares[c] + 1) + 1e-6 * std::abs(mean));
    }
  }
}

TEST_CASE("moments of no rows are 0", "[kernels][batch_norm]") {
  for (const Exec& exec : test::devices_with({&kernels::batch_moments})) {
    CHECK(moments_of<float>(exec, {}, 3) == std::vector<float>(7, 0.f));
  }
}

TEST_CASE("batch_merge gives the statistics of all rows, whoever has them",
          "[kernels][batch_norm]") {
  constexpr int64_t kCols = 5;
  const auto x = test::randn<float>(100 * kCols, 1, 3, 2);
  const Moments want = ref_moments(x, kCols);
  for (const Exec& exec : test::devices_with({&kernels::batch_moments, &kernels::batch_merge})) {
    // Merges the moments of four sets, which have 0, 37, 1 and 62 rows.
    std::vector<float> sets;
    int64_t begin = 0;
    for (const int64_t rows : {0, 37, 1, 62}) {
      const std::vector<float> part(x.begin() + begin * kCols, x.begin() + (begin + rows) * kCols);
      const std::vector<float> moments = moments_of(exec, part, kCols);
      sets.insert(sets.end(), moments.begin(), moments.end());
      begin += rows;
    }
    const Merged got =
        merge(exec, sets, kCols, std::vector<float>(kCols, 1), std::vector<float>(kCols, 2));
    CHECK(got.count == 100);
    for (size_t c = 0; c < kCols; ++c) {
      const double variance = want.squares[c] / 100, unbiased = want.squares[c] / 99;
      CHECK(std::abs(got.mean[c] - want.mean[c]) <= 8 * 0x1p-24 * 5);
      CHECK(std::abs(got.rstd[c] - 1 / std::sqrt(variance + double{kEps})) <= 32 * 0x1p-24);
      CHECK(std::abs(got.running_mean[c] - (0.9 + 0.1 * want.mean[c])) <= 8 * 0x1p-24);
      CHECK(std::abs(got.running_variance[c] - (1.8 + 0.1 * unbiased)) <= 32 * 0x1p-24 * 3);
    }
  }
}

TEST_CASE("the running variance of a single row stays, and nothing moves without rows",
          "[kernels][batch_norm]") {
  for (const Exec& exec : test::devices_with({&kernels::batch_merge})) {
    const Merged one = merge(exec, {4, 0, 1}, 1, {2}, {3});
    CHECK(one.running_mean.front() == Approx(2.2));
    CHECK(one.running_variance.front() == 3);
    const Merged none = merge(exec, {0, 0, 0}, 1, {2}, {3});
    CHECK(none.running_mean.front() == 2);
    CHECK(none.running_variance.front() == 3);
    CHECK(none.count == 0);
  }
}

namespace {

// Reference in f64 for forward and backward; the statistics of all rows are given.
struct Reference {
  Doubles y, dx, d_residual, dgain, dbias;
};

template <typename T>
struct Inputs {
  std::vector<T> x, residual, gain, bias, dy;
  std::vector<float> mean, rstd;
  bool relu = false;
};

template <typename T>
Inputs<T> make_inputs(int64_t rows, int64_t cols, bool with_residual, bool relu) {
  Inputs<T> in{.x = test::randn<T>(rows * cols, 1, 0.5, 2),
               .residual = test::randn<T>(with_residual ? rows * cols : 0, 2),
               .gain = test::randn<T>(cols, 3, 1, 0.2),
               .bias = test::randn<T>(cols, 4),
               .dy = test::randn<T>(rows * cols, 5),
               .relu = relu};
  const Moments moments = ref_moments(in.x, cols);
  for (size_t c = 0; c < size_t(cols); ++c) {
    in.mean.push_back(float(moments.mean[c]));
    in.rstd.push_back(float(1 / std::sqrt(moments.squares[c] / double(rows) + double{kEps})));
  }
  return in;
}

// The ReLU mask is taken from the kernel's own y, as rounding decides the sign near 0.
template <typename T>
Reference reference(const Inputs<T>& in, const std::vector<T>& y_of_kernel) {
  const size_t cols = in.gain.size(), rows = in.x.size() / cols;
  Reference r{.dgain = Doubles(cols), .dbias = Doubles(cols)};
  const auto normed = [&](size_t i) {
    return (test::to_f64(in.x[i]) - double{in.mean[i % cols]}) * double{in.rstd[i % cols]};
  };
  const auto g = [&](size_t i) {
    return in.relu && test::to_f64(y_of_kernel[i]) == 0 ? 0 : test::to_f64(in.dy[i]);
  };
  for (size_t i = 0; i < in.x.size(); ++i) {
    double y = normed(i) * test::to_f64(in.gain[i % cols]) + test::to_f64(in.bias[i % cols]);
    if (!in.residual.empty()) y += test::to_f64(in.residual[i]);
    r.y.push_back(in.relu ? std::max(y, 0.0) : y);
    r.d_residual.push_back(g(i));
    r.dgain[i % cols] += g(i) * normed(i);
    r.dbias[i % cols] += g(i);
  }
  for (size_t i = 0; i < in.x.size(); ++i) {
    const size_t c = i % cols;
    const double mean_g = r.dbias[c] / double(rows), mean_gn = r.dgain[c] / double(rows);
    r.dx.push_back(test::to_f64(in.gain[c]) * double{in.rstd[c]} *
                   (g(i) - mean_g - normed(i) * mean_gn));
  }
  return r;
}

template <typename T>
void check_norm(const Exec& exec, const Inputs<T>& in) {
  const auto cols = int64_t(in.gain.size()), rows = int64_t(in.x.size()) / cols;
  const Shape shape = {rows, cols};
  const DeviceArray<T> x(exec, in.x), residual(exec, in.residual), gain(exec, in.gain);
  const DeviceArray<T> bias(exec, in.bias), dy(exec, in.dy), y(exec, rows * cols);
  const DeviceArray<float> mean(exec, in.mean), rstd(exec, in.rstd);
  kernels::batch_norm(exec, {.x = x.view(shape),
                             .mean = mean.view(),
                             .rstd = rstd.view(),
                             .gain = gain.view(),
                             .bias = bias.view(),
                             .residual = in.residual.empty() ? View() : residual.view(shape),
                             .relu = in.relu,
                             .y = y.view(shape)});
  const Reference want = reference(in, y.download());
  // y is rounded once to T. In f32, four values are rounded: the factor, the shift, their sum, and
  // the sum with the residual.
  const double f32 = 8 * 0x1p-24 * (test::max_abs(want.y) + 8);
  CHECK(test::max_error(y.download(), want.y) <= f32 + test::ulp<T>() * test::max_abs(want.y));

  const DeviceArray<float> sums(exec, 2 * cols);
  const DeviceArray<float> dgain(exec, std::vector<float>(size_t(cols), 2));
  const DeviceArray<float> dbias(exec, cols), count(exec, std::vector<float>{float(rows)});
  kernels::batch_norm_sums(exec, {.dy = dy.view(shape),
                                  .x = x.view(shape),
                                  .y = in.relu ? y.view(shape) : View(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .sums = sums.view({2, cols}),
                                  .dgain = dgain.view(),
                                  .dbias = dbias.view(),
                                  .accumulate_dgain = true});
  // dgain has sums of `rows` products of moderate size, added in blocks of at least 16.
  const double of_sums = 64 * 0x1p-24 * std::sqrt(double(rows)) * 12;
  Doubles gain_want = want.dgain;
  for (double& value : gain_want) value += 2;
  CHECK(test::max_error(dgain.download(), gain_want) <= of_sums);
  CHECK(test::max_error(dbias.download(), want.dbias) <= of_sums);

  const DeviceArray<T> dx(exec, rows * cols), d_residual(exec, rows * cols);
  kernels::batch_norm_grad(exec, {.dy = dy.view(shape),
                                  .x = x.view(shape),
                                  .y = in.relu ? y.view(shape) : View(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .gain = gain.view(),
                                  .sums = sums.view({2, cols}),
                                  .count = count.view(),
                                  .dx = dx.view(shape),
                                  .d_residual = d_residual.view(shape)});
  const double scale = test::max_abs(want.dx) + 8;
  CHECK(test::max_error(dx.download(), want.dx) <= (32 * 0x1p-24 + test::ulp<T>()) * scale);
  CHECK(test::max_error(d_residual.download(), want.d_residual) == 0);
  CHECK((y.margins_intact() && dx.margins_intact() && sums.margins_intact()));
}

}  // namespace

TEMPLATE_TEST_CASE("batch_norm and its gradients agree with f64", "[kernels][batch_norm]", float,
                   bf16, f16) {
  const auto [rows, cols] = GENERATE(from_range(kSizes));
  const bool with_residual = GENERATE(false, true), relu = GENERATE(false, true);
  if (rows < 3) return;  // with so few rows the variance is so small that eps dominates
  for (const Exec& exec : test::devices_with(
           {&kernels::batch_norm, &kernels::batch_norm_sums, &kernels::batch_norm_grad})) {
    CAPTURE(rows, cols, with_residual, relu);
    check_norm(exec, make_inputs<TestType>(rows, cols, with_residual, relu));
  }
}

TEST_CASE("the gradient with fixed statistics has no terms of theirs", "[kernels][batch_norm]") {
  for (const Exec& exec : test::devices_with({&kernels::batch_norm_grad})) {
    const DeviceArray<float> dy(exec, std::vector<float>{1, 2, 3, 4}), dx(exec, 4);
    const DeviceArray<float> xs(exec, std::vector<float>{5, 6, 7, 8});
    const DeviceArray<float> mean(exec, std::vector<float>{1, 1});
    const DeviceArray<float> rstd(exec, std::vector<float>{2, 4});
    const DeviceArray<float> gain(exec, std::vector<float>{1, 0.5f});
    kernels::batch_norm_grad(exec, {.dy = dy.view({2, 2}),
                                    .x = xs.view({2, 2}),
                                    .mean = mean.view(),
                                    .rstd = rstd.view(),
                                    .gain = gain.view(),
                                    .dx = dx.view({2, 2})});
    CHECK(dx.download() == std::vector<float>{2, 4, 6, 8});
  }
}

TEST_CASE("batch norm's bits do not depend on the number of threads", "[kernels][batch_norm]") {
  for (const Exec& device : test::devices_with({&kernels::batch_moments})) {
    if (device.device.type != DeviceType::kCpu) continue;
    const auto x = test::randn<float>(2000 * 37, 1);
    CHECK(test::same_bits_for_any_threads(
        device, [&](const Exec& exec) { return moments_of(exec, x, 37); }));
  }
}

}  // namespace shale
