#include "shale/test/support/ref_gemm.h"

#include <cmath>
#include <numbers>

namespace shale::test {

using kernels::Epilogue;

RefProduct ref_product(const std::vector<double>& a, const std::vector<double>& b, int64_t m,
                       int64_t n, int64_t k) {
  RefProduct product;
  product.value.assign(static_cast<size_t>(m * n), 0);
  product.magnitude.assign(static_cast<size_t>(m * n), 0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double left = a[size_t(i * k + l)];
      for (int64_t j = 0; j < n; ++j) {
        const double term = left * b[size_t(l * n + j)];
        product.value[size_t(i * n + j)] += term;
        product.magnitude[size_t(i * n + j)] += std::abs(term);
      }
    }
  }
  return product;
}

double sum_error(int64_t k, int64_t more, double magnitude) {
  const double roundings = double(k + more) * 0x1p-24;
  return roundings / (1 - roundings) * magnitude;
}

namespace {

bool is_erf(Epilogue form) {
  return form == Epilogue::kGeluErf || form == Epilogue::kDGeluErf;
}

constexpr double kSqrt2OverPi = 0.79788456080286535588;

}  // namespace

double ref_gelu(double x, Epilogue form) {
  if (is_erf(form)) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

double ref_dgelu(double x, Epilogue form) {
  if (is_erf(form)) {
    const double density = std::exp(-0.5 * x * x) * 0.5 * kSqrt2OverPi;
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
  }
  const double t = std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x));
  const double du = kSqrt2OverPi * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
}

}  // namespace shale::test
