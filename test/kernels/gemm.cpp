#include "shale/kernels/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using AllTypes = std::tuple<Types<float, float>, Types<bf16, bf16>, Types<bf16, float>,
                            Types<f16, f16>, Types<f16, float>>;

// Sizes: one element, one row, one column, ragged, exact register tiles, several blocks.
const std::vector<GemmSize>& sizes() {
  static const std::vector<GemmSize> all{
      {1, 1, 1},    {1, 50, 64},  {1, 200, 33}, {7, 1, 40},   {2, 3, 1},      {5, 7, 3},
      {9, 200, 31}, {64, 48, 32}, {65, 97, 77}, {130, 50, 1}, {300, 800, 20}, {40, 30, 1100}};
  return all;
}

template <typename TIn, typename TOut>
void check_product(const Exec& exec, const GemmCase<TIn, TOut>& g, const RefProduct& ref) {
  const auto got = run_gemm(exec, g);
  const auto c0 = [&](size_t i) { return g.accumulate ? to_f64(g.c[i]) : 0.; };
  CHECK(worst_ratio(
            got.c, [&](size_t i) { return c0(i) + ref.value[i]; },
            [&](size_t i) {
              return sum_error(g.k, g.accumulate, ref.magnitude[i] + std::abs(c0(i)));
            }) <= 1);
  CHECK(got.padding_intact);
}

TEMPLATE_LIST_TEST_CASE("gemm agrees with f64 in every layout and size", "[gemm]", AllTypes) {
  using TIn = typename TestType::In;
  using TOut = typename TestType::Out;
  for (const auto& [m, n, k] : sizes()) {
    auto g = random_case<TIn, TOut>(m, n, k);
    const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), m, n, k);
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      for (int layout = 0; layout < 8; ++layout) {
        g.a_transposed = layout & 1, g.b_transposed = layout & 2, g.pad = layout & 4 ? 5 : 0;
        // GPU kernels copy lines of alignment 8 without repacking. They repack other lines first.
        g.align = layout & 4 ? 1 : 8;
        for (const bool accumulate : {false, true}) {
          // The emulator is slow and runs fewer cases here. The tests of plans (gemm_plans.cpp)
          // cover its kernels.
          if (exec.device.type == DeviceType::kEmu && accumulate != (layout % 3 == 1)) continue;
          g.accumulate = accumulate;
          g.c = accumulate ? randn<TOut>(m * n, 3) : std::vector<TOut>{};
          CAPTURE(m, n, k, layout, accumulate);
          check_product(exec, g, ref);
        }
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("gemm of small integers is exact", "[gemm]", AllTypes) {
  using TIn = typename TestType::In;
  using TOut = typename TestType::Out;
  for (const auto& [m, n, k] : sizes()) {
    auto g = random_case<TIn, TOut>(m, n, k);
    // Sums stay below 256, up to which bf16 has all integers: c adds 8, and at most 27 products add
    // 9 each.
    g.a = rand_int<TIn>(m * k, 4, -3, 3);
    g.b = rand_int<TIn>(k * n, 5, -3, 3);
    for (int64_t l = 27; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) g.b[size_t(l * n + j)] = TIn(0.f);
    }
    g.c = rand_int<TOut>(m * n, 6, -8, 8);
    g.accumulate = true;
    std::vector<double> want = ref_product(to_f64(g.a), to_f64(g.b), m, n, k).value;
    for (size_t i = 0; i < want.size(); ++i) want[i] += to_f64(g.c[i]);
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      for (int layout = 0; layout < 4; ++layout) {
        g.a_transposed = layout & 1, g.b_transposed = layout & 2;
        CAPTURE(m, n, k, layout);
        CHECK(max_error(run_gemm(exec, g).c, want) == 0);
      }
    }
  }
}

// Rounds to tf32 like cvt.rna.tf32.f32: 10 mantissa bits, ties away from zero.
float nearest_tf32(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1, std::max(std::ilogb(x), -126) - 10);
  return static_cast<float>(std::round(x / unit) * unit);  // ties away from zero
}

TEST_CASE("gemm in tf32 multiplies operands that are rounded to nearest", "[gemm]") {
  for (const auto& [m, n, k] : sizes()) {
    auto g = random_case<float, float>(m, n, k);
    g.a[0] = 1 + 0x1p-11f;  // halfway between two tf32 numbers
    g.b[0] = -1 - 0x3p-11f;
    std::vector<double> a, b;
    for (const float x : g.a) a.push_back(nearest_tf32(x));
    for (const float x : g.b) b.push_back(nearest_tf32(x));
    const RefProduct ref = ref_product(a, b, m, n, k);
    for (Exec exec : devices_with({&kernels::gemm})) {
      for (int layout = 0; layout < 8; ++layout) {
        g.a_transposed = layout & 1, g.b_transposed = layout & 2, g.pad = layout & 4 ? 5 : 0;
        g.align = layout & 4 ? 1 : 8;
        CAPTURE(to_string(exec.device), m, n, k, layout);
        exec.tf32 = false;
        const auto exact = run_gemm(exec, g);
        exec.tf32 = true;
        if (exec.device.type != DeviceType::kCpu && exec.device.arch < 80) {
          CHECK(contains(message_of<UnavailableError>([&] { run_gemm(exec, g); }),
                         "needs compute capability 8.0"));
          continue;
        }
        check_product(exec, g, ref);
        CHECK_FALSE(same_bits(run_gemm(exec, g).c, exact.c));
      }
    }
  }
}

TEST_CASE("gemm in tf32 keeps what is not finite, in its own row and column", "[gemm]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::bit_cast<float>(0x7fffffffu);  // the NaN that GPUs produce
  auto g = random_case<float, float>(40, 30, 20);
  g.a[0] = infinity, g.a[20] = nan, g.b[0] = 1;
  for (Exec exec : devices_with({&kernels::gemm})) {
    if (exec.device.type != DeviceType::kCpu && exec.device.arch < 80) continue;
    CAPTURE(to_string(exec.device));
    exec.tf32 = true;
    const auto c = run_gemm(exec, g).c;
    CHECK(c[0] == infinity);
    CHECK(std::isnan(c[30]));
    CHECK(std::all_of(c.begin() + 60, c.end(), [](float x) { return std::isfinite(x); }));
  }
}

TEST_CASE("gemm without inner dimension clears c, or leaves it when it accumulates", "[gemm]") {
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    auto g = random_case<float, float>(3, 70, 0);
    CHECK(max_error(run_gemm(exec, g).c, std::vector<double>(210, 0.)) == 0);
    g.c = randn<float>(210, 1);
    g.accumulate = true;
    CHECK(same_bits(run_gemm(exec, g).c, g.c));
    g.accumulate = false;
    g.c.clear();
    g.bias = randn<float>(70, 2);
    const auto c = run_gemm(exec, g).c;
    for (size_t i = 0; i < c.size(); ++i) REQUIRE(c[i] == g.bias[i % 70]);
  }
}

TEST_CASE("gemm of an empty c writes nothing", "[gemm]") {
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
      const auto got = run_gemm(exec, random_case<bf16, float>(m, n, 4));
      CHECK(got.c.empty());
      CHECK(got.padding_intact);
    }
  }
}

TEST_CASE("gemm ignores the stride of a dimension of size one", "[gemm]") {
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    const DeviceArray<float> a(exec, std::vector<float>{2, 3, 4}),
        b(exec, std::vector<float>{5, 6});
    const DeviceArray<float> c(exec, 6);
    kernels::gemm(exec, {.a = a.view({3, 1}, {1, 777}),
                         .b = b.view({1, 2}, {-3, 1}),
                         .c = c.view({3, 2}),
                         .bias = {},
                         .aux = {},
                         .residual = {},
                         .bias_grad = {}});
    CHECK(c.download() == std::vector<float>{10, 12, 15, 18, 20, 24});

    // b is one row whose elements are 2 apart, which is a transposed column.
    kernels::gemm(exec, {.a = b.view({1, 1}, {9, 9}),
                         .b = a.view({1, 2}, {1, 2}),
                         .c = c.view({1, 2}, {1, 1}),
                         .bias = {},
                         .aux = {},
                         .residual = {},
                         .bias_grad = {}});
    CHECK(c.download()[0] == 10);
    CHECK(c.download()[1] == 20);
  }
}

TEST_CASE("gemm names the argument that is wrong", "[gemm]") {
  const Exec& exec = devices().front();
  const DeviceArray<float> f(exec, 4096);
  const DeviceArray<bf16> h(exec, 4096);
  kernels::GemmArgs good;
  good.a = f.view({4, 3}), good.b = f.view({3, 5}), good.c = f.view({4, 5});
  const auto shape_error = [&](auto&& change) {
    kernels::GemmArgs bad = good;
    change(bad);
    return message_of<ShapeError>([&] { kernels::gemm(exec, bad); });
  };
  const auto dtype_error = [&](auto&& change) {
    kernels::GemmArgs bad = good;
    change(bad);
    return message_of<DTypeError>([&] { kernels::gemm(exec, bad); });
  };
  using kernels::Epilogue;
  CHECK(shape_error([&](auto& g) {
          g.b = f.view({4, 5});
        }) == "gemm: b is fp32[4,5], expected [3,5]");
  CHECK(shape_error([&](auto& g) {
          g.c = f.view({4, 6});
        }) == "gemm: c is fp32[4,6], expected [4,5]");
  CHECK(contains(shape_error([&](auto& g) { g.a = f.view({12}); }), "a is fp32[12]"));
  CHECK(contains(shape_error([&](auto& g) { g.a = f.view({4, 3}, {6, 2}); }), "strides [6,2]"));
  CHECK(contains(shape_error([&](auto& g) { g.a = f.view({4, 3}, {0, 1}); }), "overlap"));
  CHECK(contains(shape_error([&](auto& g) {
                   g.c = f.view({4, 5}, {1, 4});
                 }),
                 "stride 1 in the last dimension"));
  CHECK(contains(shape_error([&](auto& g) { g.bias = f.view({4}); }),
                 "bias is fp32[4], expected [5]"));
  CHECK(contains(shape_error([&](auto& g) { g.bias = f.view({5}, {2}); }), "strides [2]"));
  CHECK(contains(shape_error([&](auto& g) { g.residual = f.view({5, 4}); }), "residual"));
  CHECK(contains(shape_error([&](auto& g) { g.epilogue = Epilogue::kGeluErf; }), "aux is missing"));
  CHECK(contains(shape_error([&](auto& g) { g.aux = f.view({4, 5}); }), "aux is given"));
  CHECK(contains(shape_error([&](auto& g) { g.bias_grad = f.view({5}); }), "bias_grad is given"));
  CHECK(contains(shape_error([&](auto& g) { g.bias = f.view({5}), g.accumulate = true; }),
                 "accumulate"));
  CHECK(dtype_error([&](auto& g) {
          g.b = h.view({3, 5});
        }) == "gemm: b is bf16[3,5], expected fp32");
  CHECK(dtype_error([&](auto& g) {
          g.c = h.view({4, 5});
        }) == "gemm: c is bf16[4,5], expected fp32");
  CHECK(contains(dtype_error([&](auto& g) { g.bias = h.view({5}); }), "bias is bf16[5]"));
  CHECK(contains(dtype_error([&](auto& g) { g.a.dtype = DType::kI32; }), "a is int32[4,3]"));
}

}  // namespace
}  // namespace shale::test
