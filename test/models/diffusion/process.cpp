#include "shale/models/diffusion/process.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "shale/kernels/loss.h"
#include "shale/models/diffusion/batches.h"
#include "shale/test/support/batches.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using models::DiffusionKind;
using models::NoiseSchedule;
using models::TimeDraws;

// Makes batches of images whose pixels are the image's number, with classes 0 to 3. The last row of
// a batch is padding.
BatchSource numbered(int64_t rows, bool padded) {
  return [=](int64_t i, Batch& batch) {
    std::ranges::fill(batch.set("images", DType::kF32, {rows, 4, 4, 3}).values<float>(), float(i));
    const auto labels = batch.set("labels", DType::kI32, {rows}).values<int32_t>();
    batch.first_position = i * rows;
    batch.count = rows;
    for (int64_t row = 0; row < rows; ++row) labels[size_t(row)] = int32_t((i * rows + row) % 4);
    if (padded) labels.back() = kernels::kIgnoreTarget;
    return true;
  };
}

// Returns the rows of a field from all batches, up to `count` images.
template <typename T>
std::vector<T> rows_of(const BatchSource& source, const char* field, int64_t rows, int64_t count) {
  std::vector<T> all;
  Batch batch;
  for (int64_t i = 0; i * rows < count; ++i) {
    REQUIRE(source(i, batch));
    const auto values = batch.field(field).values<T>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("variances of DDPM are those that are published") {
  const NoiseSchedule all;
  REQUIRE(all.size() == 1000);
  CHECK(all.at(0).beta == Approx(1e-4));
  CHECK(all.at(999).beta == Approx(0.02));
  CHECK(all.at(499).a == Approx(0.0785872429).epsilon(1e-9));
  CHECK(all.at(999).a == Approx(4.03582977e-05).epsilon(1e-8));
  CHECK(all.at(0).log_posterior == all.at(1).log_posterior);
  for (const int64_t i : {int64_t{1}, int64_t{500}, int64_t{999}}) {
    const NoiseSchedule::Step& step = all.at(i);
    // If there is no noise, x_i is sqrt(a) x_0, and the posterior mean must be sqrt(before) x_0.
    CHECK(step.of_first + step.of_now * std::sqrt(step.a) == Approx(std::sqrt(step.before)));
    CHECK(std::exp(step.log_posterior) < step.beta);
  }
}

TEST_CASE("fewer steps of DDPM go from the last to the first with the same noise") {
  const NoiseSchedule all, some(5);
  REQUIRE(some.size() == 5);
  const std::vector<int64_t> times = {0, 250, 500, 749, 999};  // evenly spaced by 249.75, rounded
  double product = 1;
  for (int64_t i = 0; i < some.size(); ++i) {
    CHECK(some.at(i).time == times[size_t(i)]);
    product *= 1 - some.at(i).beta;
    CHECK(product == Approx(all.at(some.at(i).time).a));
  }
  CHECK(NoiseSchedule(1000).at(321).beta == Approx(all.at(321).beta));
  CHECK(NoiseSchedule(1).at(0).time == 999);
  CHECK_THROWS_AS(NoiseSchedule(0), ConfigError);
  CHECK_THROWS_AS(NoiseSchedule(1001), ConfigError);
}

TEST_CASE("times are a function of seed and position, and spread as asked") {
  constexpr int64_t kCount = 4000;
  std::array<int, 10> flow{}, ddpm{}, middle{}, validation{};
  int dropped = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const auto tenth = [](double share) { return size_t(std::min(9., share * 10)); };
    const auto time = [&](DiffusionKind kind, TimeDraws draws) {
      const double value = models::training_time(kind, draws, 7, i);
      CHECK(value == models::training_time(kind, draws, 7, i));
      return value;
    };
    const double step = time(DiffusionKind::kDdpm, TimeDraws::kUniform);
    REQUIRE((step == std::floor(step) && step >= 0 && step < 1000));
    ++flow[tenth(time(DiffusionKind::kFlow, TimeDraws::kUniform))];
    ++ddpm[tenth(step / 1000)];
    ++middle[tenth(time(DiffusionKind::kFlow, TimeDraws::kLogitNormal))];
    ++validation[tenth(models::evaluation_time(DiffusionKind::kFlow, i))];
    dropped += models::drops_class(0.1, 7, i);
  }
  // Five standard deviations of a count with mean 400.
  const auto most = int(5 * std::sqrt(kCount * 0.1 * 0.9));
  for (size_t i = 0; i < 10; ++i) {
    CHECK(std::abs(flow[i] - 400) < most);
    CHECK(std::abs(ddpm[i] - 400) < most);
    CHECK(std::abs(validation[i] - 400) <= 3);
    // Returns the probability that a standard normal value is below the logit of t.
    const auto below = [](double t) { return 0.5 * std::erfc(-std::log(t / (1 - t)) / M_SQRT2); };
    const double low = double(i) / 10, high = low + 0.1;
    const double share = (i == 9 ? 1 : below(high)) - (i == 0 ? 0 : below(low));
    CHECK(std::abs(middle[i] - kCount * share) < most);
  }
  CHECK(std::abs(dropped - 400) < most);
  CHECK(models::training_time(DiffusionKind::kFlow, TimeDraws::kUniform, 7, 1) !=
        models::training_time(DiffusionKind::kFlow, TimeDraws::kUniform, 8, 1));
}

TEST_CASE("a shift moves a flow's times towards noise") {
  CHECK(models::shifted_time(0, 3) == 0);
  CHECK(models::shifted_time(1, 3) == 1);
  CHECK(models::shifted_time(0.3, 1) == 0.3);
  // A shift divides the ratio of signal to noise, (1 - t) / t, by its value.
  for (const double time : {0.1, 0.5, 0.9}) {
    const double shifted = models::shifted_time(time, 4);
    CHECK(std::abs((1 - shifted) / shifted - (1 - time) / time / 4) < 1e-12);
  }
  const Context context(small_context());  // the context creates the kernels that generate noise
  const auto times = [](DiffusionKind kind, double shift) {
    return rows_of<float>(models::diffusion_batches({.images = numbered(4, false),
                                                     .kind = kind,
                                                     .shift = shift,
                                                     .seed = 3}),
                          "coefficients", 4, 4);
  };
  CHECK(times(DiffusionKind::kFlow, 1) != times(DiffusionKind::kFlow, 3));
  CHECK(times(DiffusionKind::kDdpm, 1) == times(DiffusionKind::kDdpm, 3));
}

TEST_CASE("noise and classes of a batch do not depend on how images are cut into batches") {
  const Context context(small_context());  // the context creates the kernels that generate noise
  const auto spec = [](int64_t rows) {
    return models::diffusion_batches(
        {.images = numbered(rows, false), .no_class = 4, .label_dropout = 0.3, .seed = 3});
  };
  check_workers_agree(spec(6), 200);
  for (const char* field : {"noise", "times", "coefficients"}) {
    CAPTURE(field);
    CHECK(rows_of<float>(spec(2), field, 2, 12) == rows_of<float>(spec(6), field, 6, 12));
  }
  const auto labels = rows_of<int32_t>(spec(100), "labels", 100, 100);
  CHECK(labels == rows_of<int32_t>(spec(50), "labels", 50, 100));
  const auto dropped = std::ranges::count(labels, 4);
  CHECK((dropped > 10 && dropped < 55));
  const auto noise = rows_of<float>(spec(100), "noise", 100, 100);
  const double n = double(noise.size());
  const double mean = std::accumulate(noise.begin(), noise.end(), 0.) / n;
  CHECK(std::abs(mean) < 5 / std::sqrt(n));
}

TEST_CASE("a validation leaves no class out, and its padding counts nothing") {
  const Context context(small_context());
  const auto source = models::diffusion_batches({.images = numbered(3, true),
                                                 .no_class = 4,
                                                 .label_dropout = 1,
                                                 .seed = 3,
                                                 .evaluates = true});
  CHECK(rows_of<int32_t>(source, "labels", 3, 3) == std::vector<int32_t>{0, 1, 4});
  const auto c = rows_of<float>(source, "coefficients", 3, 3);
  CHECK(c[models::kWeight] == Approx(1. / 48));
  CHECK(c[2 * models::kLossCoefficients + models::kWeight] == 0);
}

}  // namespace shale::test
