#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shale::bench {

// Mean and covariance of rows of features, in f64.
struct Moments {
  std::vector<double> mean;        // [size]
  std::vector<double> covariance;  // [size, size], over n - 1

  double variance() const;  // of all features together
};
// rows: [n, size], dense. Throws ConfigError for fewer than two rows.
Moments moments_of(std::span<const float> rows, int64_t size);

// |a.mean - b.mean|^2 + tr(A + B - 2 (A^1/2 B A^1/2)^1/2), the squared distance of two normal
// distributions (arXiv:1706.08500, equation 6). Throws ConfigError for moments of other sizes.
double frechet_distance(const Moments& a, const Moments& b);

}  // namespace shale::bench
