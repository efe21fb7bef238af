#include "shale/kernels/grouped_gemm.h"

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::Epilogue;
using kernels::GroupedBy;
using test::DeviceArray;

struct Size {
  std::vector<int32_t> offsets;
  int64_t rows, n, k;
  int64_t groups() const { return std::ssize(offsets) - 1; }
};
const std::vector<Size> kSizes = {{{0, 0}, 0, 3, 2},
                                  {{0, 1}, 1, 1, 1},
                                  {{0, 3, 3, 10}, 12, 17, 5},
                                  {{0, 0, 64, 96}, 96, 64, 48},
                                  {{0, 130, 131, 131, 300}, 320, 96, 130}};

// b [groups, k, n] as the transposes of weights [groups, n, k].
template <typename T>
View weights_view(const DeviceArray<T>& w, const Size& s) {
  return w.view({s.groups(), s.k, s.n}, {s.n * s.k, 1, s.k});
}

}  // namespace

// Products of whole numbers, whose sums are exact in every dtype's accumulator; c in f32.
TEMPLATE_TEST_CASE("a grouped product is the products of its groups, exactly", "[kernels][moe]",
                   float, bf16, f16) {
  for (const Exec& exec : test::devices_with({&kernels::grouped_gemm})) {
    for (const Size& s : kSizes) {
      CAPTURE(to_string(exec.device), s.rows, s.n, s.k);
      const auto a = test::rand_int<TestType>(s.rows * s.k, 1, -3, 3);
      const auto w = test::rand_int<TestType>(s.groups() * s.n * s.k, 2, -3, 3);
      const auto dy = test::rand_int<TestType>(s.rows * s.n, 3, -3, 3);
      const auto c = test::rand_int<float>(s.rows * s.n, 4, -3, 3);
      std::vector<double> rows = test::to_f64(c), inner(w.size());
      for (int64_t g = 0; g < s.groups(); ++g) {
        for (int64_t r = s.offsets[size_t(g)]; r < s.offsets[size_t(g + 1)]; ++r) {
          for (int64_t j = 0; j < s.n; ++j) {
            for (int64_t i = 0; i < s.k; ++i) {
              const auto at = size_t((g * s.n + j) * s.k + i);
              const double x = test::to_f64(a[size_t(r * s.k + i)]);
              rows[size_t(r * s.n + j)] += x * test::to_f64(w[at]);
              inner[at] += x * test::to_f64(dy[size_t(r * s.n + j)]);
            }
          }
        }
      }
      const DeviceArray<int32_t> offsets(exec, s.offsets);
      const DeviceArray<TestType> da(exec, a), dw(exec, w), ddy(exec, dy);
      const DeviceArray<float> dc(exec, c), grad(exec, int64_t(w.size()));
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .a = da.view({s.rows, s.k}),
                                   .b = weights_view(dw, s),
                                   .c = dc.view({s.rows, s.n}),
                                   .accumulate = true});
      CHECK(dc.margins_intact());
      CHECK(test::max_error(dc.download(), rows) == 0);
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .by = GroupedBy::kInner,
                                   .a = ddy.view({s.n, s.rows}, {1, s.n}),
                                   .b = da.view({s.rows, s.k}),
                                   .c = grad.view({s.groups(), s.n, s.k})});
      CHECK(grad.margins_intact());
      CHECK(test::max_error(grad.download(), inner) == 0);
    }
  }
}

TEST_CASE("a grouped SwiGLU product has the bits of each group's own, for any threads",
          "[kernels][moe]") {
  const Size s = kSizes.back();
  const auto a = test::randn<float>(s.rows * s.k, 1);
  const auto gate = test::randn<float>(s.groups() * s.n * s.k, 2);
  const auto up = test::randn<float>(s.groups() * s.n * s.k, 3);
  for (const Exec& device : test::devices_with({&kernels::grouped_gemm, &kernels::gemm})) {
    const DeviceArray<int32_t> offsets(device, s.offsets);
    const DeviceArray<float> da(device, a), dg(device, gate), du(device, up);
    const auto run = [&](const Exec& exec) {
      const DeviceArray<float> c(exec, s.rows * s.n), aux(exec, c.size()), aux_up(exec, c.size());
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .a = da.view({s.rows, s.k}),
                                   .b = weights_view(dg, s),
                                   .c = c.view({s.rows, s.n}),
                                   .epilogue = Epilogue::kSwiGlu,
                                   .aux = aux.view({s.rows, s.n}),
                                   .b_up = weights_view(du, s),
                                   .aux_up = aux_up.view({s.rows, s.n})});
      return c.download();
    };
    const auto grouped = run(device);
    CHECK(test::same_bits_for_any_threads(device, run));
    for (int64_t g = 0; g < s.groups(); ++g) {
      const int64_t begin = s.offsets[size_t(g)], end = s.offsets[size_t(g + 1)];
      if (begin == end) continue;
      const int64_t m = end - begin;
      const DeviceArray<float> c(device, m * s.n), aux(device, m * s.n), aux_up(device, m * s.n);
      const auto weights = [&](const DeviceArray<float>& w) {
        return w.view({s.k, s.n}, {1, s.k}, g * s.n * s.k);
      };
      kernels::gemm(device, {.a = da.view({m, s.k}, {s.k, 1}, begin * s.k),
                             .b = weights(dg),
                             .c = c.view({m, s.n}),
                             .epilogue = Epilogue::kSwiGlu,
                             .aux = aux.view({m, s.n}),
                             .b_up = weights(du),
                             .aux_up = aux_up.view({m, s.n})});
      const std::vector<float> own(grouped.begin() + begin * s.n, grouped.begin() + end * s.n);
      CHECK(test::same_bits(c.download(), own));
    }
    // Rows of no group stay as they were.
    const std::vector<float> rest(grouped.begin() + s.offsets.back() * s.n, grouped.end());
    CHECK(test::same_bits(rest, test::poison<float>(std::ssize(rest))));
  }
}

}  // namespace shale
