#include "shale/bench/support/vendor_matmul.h"

#include <vector>

#include "shale/bench/support/buffer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"

namespace shale::bench {
namespace {

using test::rand_int;

// Inputs are integers so small that every sum is exact in any order.
std::vector<float> naive(const MatmulSpec& s, const std::vector<float>& a,
                         const std::vector<float>& b, std::vector<float> c) {
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      float sum = s.accumulate ? c[size_t(i * s.ldc + j)] : 0;
      for (int64_t k = 0; k < s.k; ++k) {
        sum += a[size_t(s.a_transposed ? k * s.lda + i : i * s.lda + k)] *
               b[size_t(s.b_transposed ? j * s.ldb + k : k * s.ldb + j)];
      }
      c[size_t(i * s.ldc + j)] = sum;
    }
  }
  return c;
}

}  // namespace

TEST_CASE("the vendor's product is a·b, or is added to c", "[bench]") {
  const bool a_transposed = GENERATE(false, true), b_transposed = GENERATE(false, true);
  const bool accumulate = GENERATE(false, true);
  CAPTURE(a_transposed, b_transposed, accumulate);
  const int64_t m = 33, n = 17, k = 40;
  const MatmulSpec spec{.m = m, .n = n, .k = k,
                        .lda = a_transposed ? m : k, .ldb = b_transposed ? k : n, .ldc = n + 3,
                        .a_transposed = a_transposed, .b_transposed = b_transposed,
                        .accumulate = accumulate};
  const auto a = rand_int<float>(m * k, 1, -3, 3), b = rand_int<float>(k * n, 2, -3, 3);
  auto c = rand_int<float>(m * (n + 3), 3, -3, 3);
  const auto want = naive(spec, a, b, c);
  CHECK(spec.a_bytes() == int64_t(a.size()) * 4);
  CHECK(spec.b_bytes() == int64_t(b.size()) * 4);
  CHECK(spec.c_bytes() == ((m - 1) * (n + 3) + n) * 4);  // no padding after the last row

  const VendorMatmul matmul(spec);
  const Buffer scratch(matmul.scratch_bytes());
  matmul.run(a.data(), b.data(), c.data(), scratch.data());
  CHECK(c == want);
}

TEST_CASE("a kernel's arguments become the same product", "[bench]") {
  std::vector<float> memory(100);
  View weight = make_view(memory.data(), {4, 5});  // [N, K], used as [K, N]
  std::swap(weight.shape[0], weight.shape[1]);
  std::swap(weight.strides[0], weight.strides[1]);
  const MatmulSpec spec = matmul_spec({.a = make_view(memory.data(), {3, 5}),
                                       .b = weight,
                                       .c = make_view(memory.data(), {3, 4})});
  CHECK(spec == MatmulSpec{.m = 3, .n = 4, .k = 5, .lda = 5, .ldb = 5, .ldc = 4,
                           .b_transposed = true});
}

}  // namespace shale::bench
