#include "shale/kernels/cpu/gemm_packed.h"

#include <hwy/targets.h>

#include <cmath>
#include <vector>

#include "shale/base/tf32.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"

namespace shale {
namespace {

using kernels::Matrix;

struct Sizes {
  int64_t m, n, k;
};

template <typename T>
Matrix matrix(std::vector<T>& values, int64_t rows, int64_t cols, bool transposed) {
  // Lines have three elements more than the matrix, which are NaN and must not be read.
  const int64_t lines = transposed ? cols : rows, length = transposed ? rows : cols;
  const std::vector<float> numbers = test::randn<float>(lines * length, lines + length);
  values.assign(size_t(lines * (length + 3)), T(std::nanf("")));
  for (int64_t i = 0; i < lines; ++i) {
    for (int64_t j = 0; j < length; ++j) {
      values[size_t(i * (length + 3) + j)] = T(numbers[size_t(i * length + j)]);
    }
  }
  return {.data = values.data(), .dtype = dtype_of<T>, .ld = length + 3, .transposed = transposed};
}

template <typename T>
void check(const Sizes& size, bool a_transposed, bool b_transposed, bool tf32) {
  const auto [m, n, k] = size;
  CAPTURE(m, n, k, a_transposed, b_transposed, tf32, dtype_name(dtype_of<T>));
  std::vector<T> a_values, b_values;
  const Matrix a = matrix(a_values, m, k, a_transposed), b = matrix(b_values, k, n, b_transposed);
  const int64_t ldc = n + 1;
  std::vector<float> c(size_t(m * ldc), 2.f),
      scratch(kernels::cpu::packed_scratch_floats(m, k, a_transposed) + 16);
  float* const aligned =
      scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) / sizeof(float);
  kernels::cpu::run_packed(
      {.a = a, .b = b, .rows = m, .cols = n, .k = k, .tf32 = tf32, .c = c.data(), .ldc = ldc},
      aligned);
  const auto at = [&](const Matrix& x, int64_t i, int64_t j) {
    const float value = to_f32(*static_cast<const T*>(x.at(i, j)));
    return double(tf32 ? round_to_tf32(value) : value);
  };
  double worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size_of_sum = 1e-30;
      for (int64_t l = 0; l < k; ++l) {
        const double term = at(a, i, l) * at(b, l, j);
        sum += term, size_of_sum += std::abs(term);
      }
      worst = std::max(worst, std::abs(c[size_t(i * ldc + j)] - sum) / size_of_sum);
    }
    CHECK(c[size_t(i * ldc + n)] == 2.f);
  }
  CHECK(worst < 1e-5);
}

}  // namespace

TEST_CASE("packed matmuls agree with f64 on every instruction set", "[kernels][gemm]") {
  // Around the sizes of tiles (6 and 12 rows), strips (8, 16 and 32 columns) and ranges of k (256).
  const auto sizes = {Sizes{1, 1, 1}, {5, 7, 3}, {12, 32, 256}, {13, 33, 257}, {30, 70, 600}};
  for (const int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;  // this machine lacks the instructions
    CAPTURE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const Sizes& size : sizes) {
      for (int layout = 0; layout < 4; ++layout) {
        const bool a_transposed = layout & 1, b_transposed = layout & 2;
        check<bf16>(size, a_transposed, b_transposed, /*tf32=*/false);
        check<f16>(size, a_transposed, b_transposed, /*tf32=*/false);
        check<float>(size, a_transposed, b_transposed, /*tf32=*/true);
      }
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace shale
