#include "shale/kernels/gemm.h"

#include <tuple>

#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using kernels::Epilogue;

using AllTypes =
    std::tuple<Types<float, float>, Types<bf16, bf16>, Types<bf16, float>, Types<f16, f16>>;

const std::vector<GemmSize>& sizes() {
  static const std::vector<GemmSize> all{{1, 1, 1},   {1, 70, 20},   {3, 16, 8},
                                         {33, 61, 0}, {140, 401, 9}, {20, 30, 1050}};
  return all;
}

// Makes operands for which a·b has a standard deviation of 2, so that GELU's nonlinear range is
// covered.
template <typename TIn, typename TOut>
GemmCase<TIn, TOut> epilogue_case(const GemmSize& s) {
  auto g = random_case<TIn, TOut>(s.m, s.n, s.k);
  if (s.k > 0) g.b = randn<TIn>(s.k * s.n, 2, 0, 2 / std::sqrt(double(s.k)));
  return g;
}

// Bounds the error of GELU and of its derivative. Both are computed in f32, with errors of a few
// ulps of the largest intermediate value, which is at most max(1, |x|). The tests of the two
// functions have the exact numbers.
double activation_error(double x) {
  return 16 * 0x1p-24 * std::max(1., std::abs(x));
}

TEMPLATE_LIST_TEST_CASE("gemm adds bias and residual with one rounding", "[gemm]", AllTypes) {
  using TIn = typename TestType::In;
  using TOut = typename TestType::Out;
  for (const GemmSize& s : sizes()) {
    auto g = epilogue_case<TIn, TOut>(s);
    g.bias = randn<TIn>(s.n, 3);
    g.residual = randn<TOut>(s.m * s.n, 4);
    g.pad = 3;
    g.b_transposed = true;
    const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), s.m, s.n, s.k);
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      CAPTURE(s.m, s.n, s.k);
      const auto got = run_gemm(exec, g);
      const auto bias = [&](size_t i) { return to_f64(g.bias[i % size_t(s.n)]); };
      const auto residual = [&](size_t i) { return to_f64(g.residual[i]); };
      CHECK(worst_ratio(
                got.c, [&](size_t i) { return ref.value[i] + bias(i) + residual(i); },
                [&](size_t i) {
                  return sum_error(s.k, 2,
                                   ref.magnitude[i] + std::abs(bias(i)) + std::abs(residual(i)));
                }) <= 1);
      CHECK(got.padding_intact);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("gemm with GELU keeps its argument, and c is the GELU of what is kept",
                        "[gemm]", AllTypes) {
  using TIn = typename TestType::In;
  using TOut = typename TestType::Out;
  const auto form = GENERATE(Epilogue::kGeluTanh, Epilogue::kGeluErf);
  for (const GemmSize& s : sizes()) {
    auto g = epilogue_case<TIn, TOut>(s);
    g.epilogue = form;
    g.bias = randn<TIn>(s.n, 3);
    g.residual = randn<TOut>(s.m * s.n, 4);
    g.aux.assign(size_t(s.m * s.n), make<TIn>(std::nan("")));
    g.pad = 1;
    g.b_transposed = true;
    const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), s.m, s.n, s.k);
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      CAPTURE(s.m, s.n, s.k, int(form));
      const auto got = run_gemm(exec, g);
      const auto bias = [&](size_t i) { return to_f64(g.bias[i % size_t(s.n)]); };
      CHECK(worst_ratio(
                got.aux, [&](size_t i) { return ref.value[i] + bias(i); },
                [&](size_t i) {
                  return sum_error(s.k, 1, ref.magnitude[i] + std::abs(bias(i)));
                }) <= 1);
      // The reference takes the stored argument of GELU, so the error no longer depends on k.
      const auto want = [&](size_t i) {
        return ref_gelu(to_f64(got.aux[i]), form) + to_f64(g.residual[i]);
      };
      CHECK(worst_ratio(got.c, want, [&](size_t i) {
              return activation_error(to_f64(got.aux[i])) + 0x1p-24 * std::abs(want(i));
            }) <= 1);
      CHECK(got.padding_intact);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("gemm multiplies with GELU's derivative and sums c's columns", "[gemm]",
                        AllTypes) {
  using TIn = typename TestType::In;
  using TOut = typename TestType::Out;
  const auto form = GENERATE(Epilogue::kDGeluTanh, Epilogue::kDGeluErf);
  for (const GemmSize& s : sizes()) {
    auto g = epilogue_case<TIn, TOut>(s);
    g.epilogue = form;
    g.aux = randn<TIn>(s.m * s.n, 3, 0, 2);
    g.bias_grad = randn<float>(s.n, 4);
    g.accumulate_bias_grad = s.m > 10;
    g.pad = 2;
    const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), s.m, s.n, s.k);
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      CAPTURE(s.m, s.n, s.k, int(form));
      const auto got = run_gemm(exec, g);
      const auto slope = [&](size_t i) { return ref_dgelu(to_f64(g.aux[i]), form); };
      CHECK(worst_ratio(
                got.c, [&](size_t i) { return ref.value[i] * slope(i); },
                [&](size_t i) {
                  const double of_product = sum_error(s.k, 1, ref.magnitude[i]);
                  return of_product * std::abs(slope(i)) +
                         (std::abs(ref.value[i]) + of_product) * activation_error(to_f64(g.aux[i]));
                }) <= 1);

      // bias_grad has the column sums of c as stored.
      std::vector<double> sums(size_t(s.n)), magnitudes(size_t(s.n));
      for (size_t j = 0; j < size_t(s.n); ++j) {
        if (g.accumulate_bias_grad) sums[j] = magnitudes[j] = g.bias_grad[j];
        magnitudes[j] = std::abs(magnitudes[j]);
        for (size_t i = j; i < got.c.size(); i += size_t(s.n)) {
          sums[j] += to_f64(got.c[i]);
          magnitudes[j] += std::abs(to_f64(got.c[i]));
        }
      }
      CHECK(worst_ratio(
                got.bias_grad, [&](size_t j) { return sums[j]; },
                [&](size_t j) { return sum_error(s.m, 1, magnitudes[j]); }) <= 1);
      CHECK(got.padding_intact);
    }
  }
}

TEST_CASE("gemm without rows has a bias gradient of zero", "[gemm]") {
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    const DeviceArray<float> none(exec, 0), b(exec, randn<float>(12, 1));
    const DeviceArray<float> grad(exec, std::vector<float>{1, 2, 3});
    kernels::GemmArgs args;
    args.a = none.view({0, 4}), args.b = b.view({4, 3}), args.c = none.view({0, 3});
    args.epilogue = Epilogue::kDGeluTanh;
    args.aux = none.view({0, 3});
    args.bias_grad = grad.view({3});
    args.accumulate_bias_grad = true;
    kernels::gemm(exec, args);
    CHECK(grad.download() == std::vector<float>{1, 2, 3});
    args.accumulate_bias_grad = false;
    kernels::gemm(exec, args);
    CHECK(grad.download() == std::vector<float>{0, 0, 0});
  }
}

TEMPLATE_TEST_CASE("gemm may write c over its residual, or over aux", "[gemm]", float, bf16) {
  const int64_t m = 70, n = 400, k = 24;
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    auto g = epilogue_case<TestType, TestType>({m, n, k});
    const DeviceArray<TestType> a(exec, g.a), b(exec, g.b);
    DeviceArray<TestType> c(exec, m * n);
    kernels::GemmArgs args;
    args.a = a.view({m, k}), args.b = b.view({k, n}), args.c = c.view({m, n});

    g.residual = randn<TestType>(m * n, 3);
    c.upload(g.residual);
    args.residual = args.c;
    kernels::gemm(exec, args);
    CHECK(same_bits(c.download(), run_gemm(exec, g).c));

    g.residual.clear();
    args.residual = {};
    g.aux = randn<TestType>(m * n, 4);
    g.epilogue = args.epilogue = Epilogue::kDGeluTanh;
    c.upload(g.aux);
    args.aux = args.c;
    kernels::gemm(exec, args);
    CHECK(same_bits(c.download(), run_gemm(exec, g).c));
  }
}

}  // namespace
}  // namespace shale::test
