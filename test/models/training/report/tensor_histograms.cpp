#include "shale/models/training/report/tensor_histograms.h"

#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>

#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

// Counts the values in each range of a histogram, by the definition of ranges.
std::vector<double> counted(const Histogram& histogram, const std::vector<float>& values) {
  std::vector<double> counts(histogram.counts.size());
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    size_t place = 0;
    // Ranges of negative values include their right edge, others do not.
    while (place + 1 < counts.size() &&
           (histogram.right_edges[place] < 0 ? value > histogram.right_edges[place]
                                             : value >= histogram.right_edges[place])) {
      ++place;
    }
    ++counts[place];
  }
  return counts;
}

}  // namespace

TEST_CASE("a histogram counts every value where it lies", "[tensor_histograms]") {
  std::vector<float> values;
  for (int i = 1; i <= 4000; ++i) {
    const auto magnitude = static_cast<float>(std::exp2(-i % 40) * (1 + 0.7 * (i % 13)));
    values.push_back(i % 3 == 0 ? -magnitude : magnitude);
  }
  values.insert(values.end(), {0.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(),
                               -std::numeric_limits<float>::infinity(), 1e-42f});
  ValueCounts whole, part;
  whole.add(values);
  part.add(std::span(values).first(1000));
  part.add(std::span(values).subspan(1000));
  CHECK(whole.counts == part.counts);
  CHECK(whole.finite == 4003);

  const Histogram histogram = histogram_of(whole, 1);
  CHECK(histogram.count == 4003);
  CHECK(histogram.counts == counted(histogram, values));
  CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 4003);
  CHECK(std::is_sorted(histogram.right_edges.begin(), histogram.right_edges.end()));
  CHECK(histogram.right_edges.size() <= 138);
  CHECK(histogram.right_edges.back() > histogram.most);
  CHECK(histogram.right_edges.front() >= histogram.least);
  const double sum = std::accumulate(values.begin(), values.begin() + 4000, 0.0);
  CHECK(histogram.sum == Approx(sum));
}

TEST_CASE("a scale moves the edges and no value", "[tensor_histograms]") {
  ValueCounts counts;
  counts.add(std::vector<float>{1, 2, -3});
  const Histogram histogram = histogram_of(counts, 0.5), plain = histogram_of(counts, 1);
  CHECK(histogram.counts == plain.counts);
  CHECK(histogram.least == -1.5);
  CHECK(histogram.most == 1);
  CHECK(histogram.sum == 0);
  CHECK(histogram.sum_of_squares == 14 / 4.0);
  for (size_t i = 0; i < plain.right_edges.size(); ++i) {
    CHECK(histogram.right_edges[i] == plain.right_edges[i] / 2);
  }
}

TEST_CASE("what has no finite value has no ranges, the largest floats have one",
          "[tensor_histograms]") {
  CHECK(histogram_of(ValueCounts{}, 1).counts.empty());
  ValueCounts counts;
  counts.add(std::vector<float>{std::numeric_limits<float>::max(), 0});
  const Histogram histogram = histogram_of(counts, 1);
  CHECK(histogram.counts.back() == 1);
  CHECK(histogram.right_edges.back() == double{std::numeric_limits<float>::max()});
}

TEST_CASE("counting takes nanoseconds a value", "[tensor_histograms]") {
  std::vector<float> values;
  for (int i = 0; i < 4'000'000; ++i) {
    values.push_back(static_cast<float>(std::sin(0.37 * i) * std::exp2(-i % 11)));
  }
  const auto thread_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  ValueCounts counts;
  const double before = thread_seconds();
  counts.add(values);
  const double ns = 1e9 * (thread_seconds() - before) / static_cast<double>(values.size());
  std::printf("a value of a histogram: %.2f ns\n", ns);
  CHECK(ns < 50);
}

}  // namespace shale::models
