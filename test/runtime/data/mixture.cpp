#include "shale/runtime/data/mixture.h"

#include <cmath>
#include <limits>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

using namespace shale;

TEST_CASE("every source has its share of any number of samples, and each of its samples once",
          "[data]") {
  const std::vector<std::vector<double>> all = {
      {1}, {0.7, 0.3}, {5, 1, 1, 1}, {1, 1, 1}, {1e-6, 1, 1e-3}, {3, 0.01, 0.01, 0.01, 0.02}};
  for (const std::vector<double>& weights : all) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    const Mixture mixture(weights);
    std::vector<int64_t> next(weights.size());
    const double slack = 0.5 + 0.5 * static_cast<double>(weights.size());
    for (int64_t position = 0; position < 3000; ++position) {
      const Mixture::Draw draw = mixture.draw(position);
      const auto source = static_cast<size_t>(draw.source);
      REQUIRE(draw.index == next.at(source)++);
      for (size_t i = 0; i < weights.size(); ++i) {
        const double wanted = weights[i] / sum * static_cast<double>(position + 1);
        REQUIRE(std::abs(static_cast<double>(next[i]) - wanted) <= slack);
      }
    }
  }
}

TEST_CASE("a mixture goes on behind its period, without a gap", "[data]") {
  const Mixture mixture(std::vector<double>{0.9, 0.1});
  const int64_t period = int64_t{1} << 31;
  std::vector<Mixture::Draw> last(2);
  for (int64_t position = period - 50; position < period + 50; ++position) {
    const Mixture::Draw draw = mixture.draw(position);
    Mixture::Draw& before = last[static_cast<size_t>(draw.source)];
    if (before.index > 0) REQUIRE(draw.index == before.index + 1);
    before = draw;
  }
  CHECK(last[0].index + last[1].index + 2 == period + 50);
  CHECK(mixture.share(1) == Approx(0.1).epsilon(1e-8));
}

TEST_CASE("weights that are no shares are refused", "[data]") {
  CHECK_THROWS_AS(Mixture(std::vector<double>{}), ConfigError);
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(Mixture(std::vector<double>{1, bad}), ConfigError);
  }
  CHECK_THROWS_AS(Mixture(std::vector<double>(65537, 1.0)), ConfigError);
  CHECK_THROWS_AS(Mixture(std::vector<double>{1}).draw(-1), InternalError);
}
