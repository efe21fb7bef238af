#include "shale/bench/support/frechet.h"

#include <algorithm>
#include <cmath>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

// A square matrix, row by row.
struct Matrix {
  explicit Matrix(size_t size) : n(size), values(size * size) {}
  Matrix(size_t size, std::vector<double> elements) : n(size), values(std::move(elements)) {}
  double& at(size_t row, size_t col) { return values[row * n + col]; }
  double at(size_t row, size_t col) const { return values[row * n + col]; }

  size_t n;
  std::vector<double> values;
};

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix y(a.n);
  for (size_t i = 0; i < a.n; ++i) {
    for (size_t k = 0; k < a.n; ++k) {
      for (size_t j = 0; j < a.n; ++j) y.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return y;
}

// Turns rows and columns p and q of a symmetric matrix so that its element (p, q) becomes 0, and
// the columns of `vectors` with them.
void rotate(Matrix& a, Matrix& vectors, size_t p, size_t q) {
  if (a.at(p, q) == 0) return;
  const double half = (a.at(q, q) - a.at(p, p)) / (2 * a.at(p, q));
  const double t = (half < 0 ? -1 : 1) / (std::abs(half) + std::sqrt(half * half + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  const auto turn = [&](double& x, double& y) {
    const double old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  };
  for (size_t k = 0; k < a.n; ++k) turn(a.at(k, p), a.at(k, q));
  for (size_t k = 0; k < a.n; ++k) turn(a.at(p, k), a.at(q, k));
  for (size_t k = 0; k < a.n; ++k) turn(vectors.at(k, p), vectors.at(k, q));
}

// Jacobi's method: `a` becomes diagonal, with its eigenvalues; returns the vectors as columns.
Matrix diagonalise(Matrix& a) {
  constexpr int kMaxSweeps = 50;
  constexpr double kSmall = 1e-24;  // of squares, beside all
  Matrix vectors(a.n);
  for (size_t i = 0; i < a.n; ++i) vectors.at(i, i) = 1;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double all = 0, off = 0;
    for (size_t i = 0; i < a.n; ++i) {
      for (size_t j = 0; j < a.n; ++j) {
        const double square = a.at(i, j) * a.at(i, j);
        all += square;
        off += i == j ? 0 : square;
      }
    }
    if (off <= kSmall * all) break;
    for (size_t p = 0; p + 1 < a.n; ++p) {
      for (size_t q = p + 1; q < a.n; ++q) rotate(a, vectors, p, q);
    }
  }
  return vectors;
}

// Rounding makes eigenvalues of 0 negative.
double root(double eigenvalue) {
  return std::sqrt(std::max(eigenvalue, 0.));
}

Matrix square_root(Matrix a) {
  const Matrix vectors = diagonalise(a);
  Matrix y(a.n);
  for (size_t i = 0; i < a.n; ++i) {
    for (size_t j = 0; j < a.n; ++j) {
      for (size_t k = 0; k < a.n; ++k) {
        y.at(i, j) += vectors.at(i, k) * root(a.at(k, k)) * vectors.at(j, k);
      }
    }
  }
  return y;
}

}  // namespace

double Moments::variance() const {
  double sum = 0;
  for (size_t i = 0; i < mean.size(); ++i) sum += covariance[i * (mean.size() + 1)];
  return sum;
}

Moments moments_of(std::span<const float> rows, int64_t size) {
  const auto width = static_cast<size_t>(size);
  const size_t n = rows.size() / width;
  if (n < 2) throw ConfigError(cat("moments of ", n, " rows, want two or more"));
  Moments m{.mean = std::vector<double>(width), .covariance = std::vector<double>(width * width)};
  for (size_t i = 0; i < n * width; ++i) m.mean[i % width] += double{rows[i]};
  for (double& value : m.mean) value /= static_cast<double>(n);
  for (size_t row = 0; row < n; ++row) {
    const auto off = [&](size_t i) { return double{rows[row * width + i]} - m.mean[i]; };
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) m.covariance[i * width + j] += off(i) * off(j);
    }
  }
  for (double& value : m.covariance) value /= static_cast<double>(n - 1);
  return m;
}

double frechet_distance(const Moments& a, const Moments& b) {
  const size_t n = a.mean.size();
  if (b.mean.size() != n) {
    throw ConfigError(cat("distance of ", n, " and ", b.mean.size(), " features, want as many"));
  }
  double distance = 0;
  for (size_t i = 0; i < n; ++i) {
    const double off = a.mean[i] - b.mean[i];
    distance += off * off;
  }
  distance += a.variance() + b.variance();
  const Matrix half = square_root({n, a.covariance});
  Matrix product = half * Matrix(n, b.covariance) * half;
  diagonalise(product);
  for (size_t i = 0; i < n; ++i) distance -= 2 * root(product.at(i, i));
  return distance;
}

}  // namespace shale::bench
