#pragma once

#include <cstdint>
#include <vector>

#include "shale/kernels/gemm.h"
#include "shale/test/support/numbers.h"

namespace shale::test {

// Product of row-major matrices in f64.
struct RefProduct {
  std::vector<double> value;      // a·b
  std::vector<double> magnitude;  // |a|·|b|: rounding errors of a·b are relative to it
};
RefProduct ref_product(const std::vector<double>& a, const std::vector<double>& b, int64_t m,
                       int64_t n, int64_t k);

// Returns the largest error of an f32 sum of k products and `more` other terms, in any order.
// `magnitude` is the sum of the terms' magnitudes. Each term passes through at most k + more - 1
// additions, and its product may be rounded: k + more roundings of relative size u = 2^-24 (Higham,
// Accuracy and Stability of Numerical Algorithms, section 3.1).
double sum_error(int64_t k, int64_t more, double magnitude);

// GELU and its derivative, by tanh or erf as in this epilogue.
double ref_gelu(double x, kernels::Epilogue form);
double ref_dgelu(double x, kernels::Epilogue form);

// Memory layout of a row-major matrix: element (i, j) is at i * row_stride + j * col_stride.
struct Placement {
  int64_t rows = 0, cols = 0;
  bool transposed = false;
  int64_t pad = 0;    // number of NaN elements between lines
  // The length of a line, with its padding, is a multiple of this number of elements.
  int64_t align = 1;

  int64_t ld() const {
    const int64_t line = (transposed ? rows : cols) + pad;
    return (line + align - 1) / align * align;
  }
  int64_t size() const { return ld() * (transposed ? cols : rows); }
  Shape shape() const { return {rows, cols}; }
  Shape strides() const { return transposed ? Shape{1, ld()} : Shape{ld(), 1}; }
  int64_t index(int64_t i, int64_t j) const { return transposed ? j * ld() + i : i * ld() + j; }
};

// place() stores row-major values in this layout, and gather() reads them from it.
template <typename T>
std::vector<T> place(const Placement& p, const std::vector<T>& values) {
  std::vector<T> memory(static_cast<size_t>(p.size()), make<T>(std::nan("")));
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.cols; ++j) {
      memory[size_t(p.index(i, j))] = values[size_t(i * p.cols + j)];
    }
  }
  return memory;
}
template <typename T>
std::vector<T> gather(const Placement& p, const std::vector<T>& memory) {
  std::vector<T> values(static_cast<size_t>(p.rows * p.cols));
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.cols; ++j) {
      values[size_t(i * p.cols + j)] = memory[size_t(p.index(i, j))];
    }
  }
  return values;
}

}  // namespace shale::test
