#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "shale/test/support/gpus.h"
#include "shale/test/support/ref_gemm.h"

namespace shale::test {

// Dtypes of a product's operands and of its result.
template <typename TIn, typename TOut>
struct Types {
  using In = TIn;
  using Out = TOut;
};

struct GemmSize {
  int64_t m, n, k;
};

// Arguments of a call of the gemm slot. These matrices are row-major; a_transposed, b_transposed,
// pad and align choose their layout in the kernel's memory.
template <typename TIn, typename TOut>
struct GemmCase {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  int64_t pad = 0, align = 1;
  std::vector<TIn> a, b;
  std::vector<TOut> c;    // c before the call; NaN if empty
  std::vector<TIn> bias;  // empty: no bias
  // aux of the epilogue; if the kernel writes it: any values of this size.
  std::vector<TIn> aux;
  std::vector<TIn> b_up, aux_up;  // operands of SwiGLU
  std::vector<TOut> residual;
  std::vector<float> bias_grad;  // bias_grad before the call
  kernels::Epilogue epilogue = kernels::Epilogue::kNone;
  bool accumulate = false, accumulate_bias_grad = false;
  const kernels::GemmPlan* plan = nullptr;
};

template <typename TIn, typename TOut>
struct GemmResult {
  std::vector<TOut> c;
  std::vector<TIn> aux, aux_up;
  std::vector<TOut> c_up;  // output of kDSwiGlu
  std::vector<float> bias_grad;
  bool padding_intact = false;  // true: the call wrote nothing between rows or outside of them
};

inline std::vector<Exec> hopper_devices() {
  return only_hopper(devices_with({&kernels::gemm}));
}

template <typename TIn, typename TOut>
GemmCase<TIn, TOut> random_case(int64_t m, int64_t n, int64_t k) {
  GemmCase<TIn, TOut> g;
  g.m = m, g.n = n, g.k = k;
  g.a = randn<TIn>(m * k, 1);
  g.b = randn<TIn>(k * n, 2);
  return g;
}

template <typename TIn, typename TOut>
GemmResult<TIn, TOut> run_gemm(const Exec& exec, const GemmCase<TIn, TOut>& g) {
  const Placement a_at{g.m, g.k, g.a_transposed, g.pad, g.align};
  const Placement b_at{g.k, g.n, g.b_transposed, g.pad, g.align};
  const Placement c_at{g.m, g.n, false, g.pad, g.align};
  const DeviceArray<TIn> a(exec, place(a_at, g.a)), b(exec, place(b_at, g.b)), bias(exec, g.bias);
  using kernels::Epilogue;
  const bool has_aux = g.epilogue != Epilogue::kNone;
  const bool has_b_up = g.epilogue == Epilogue::kSwiGlu;
  const bool has_c_up = g.epilogue == Epilogue::kDSwiGlu, has_aux_up = has_b_up || has_c_up;
  const DeviceArray<TIn> aux(exec, has_aux ? place(c_at, g.aux) : g.aux);
  const DeviceArray<TIn> aux_up(exec, has_aux_up ? place(c_at, g.aux_up) : g.aux_up);
  const DeviceArray<TIn> b_up(exec, has_b_up ? place(b_at, g.b_up) : g.b_up);
  const DeviceArray<TOut> residual(exec, g.residual.empty() ? g.residual : place(c_at, g.residual));
  const std::vector<TOut> blank(size_t(g.m * g.n), make<TOut>(std::nan("")));
  const DeviceArray<TOut> c(exec, place(c_at, g.c.empty() ? blank : g.c));
  const DeviceArray<TOut> c_up(exec, has_c_up ? place(c_at, blank) : std::vector<TOut>{});
  const DeviceArray<float> bias_grad(exec, g.bias_grad);

  kernels::GemmArgs args;
  args.a = a.view(a_at.shape(), a_at.strides());
  args.b = b.view(b_at.shape(), b_at.strides());
  args.c = c.view(c_at.shape(), c_at.strides());
  if (!g.bias.empty()) args.bias = bias.view();
  if (has_aux) args.aux = aux.view(c_at.shape(), c_at.strides());
  if (!g.residual.empty()) args.residual = residual.view(c_at.shape(), c_at.strides());
  if (!g.bias_grad.empty()) args.bias_grad = bias_grad.view();
  if (has_b_up) args.b_up = b_up.view(b_at.shape(), b_at.strides());
  if (has_aux_up) args.aux_up = aux_up.view(c_at.shape(), c_at.strides());
  if (has_c_up) args.c_up = c_up.view(c_at.shape(), c_at.strides());
  args.epilogue = g.epilogue;
  args.accumulate = g.accumulate;
  args.accumulate_bias_grad = g.accumulate_bias_grad;
  args.plan = g.plan;
  kernels::gemm(exec, args);

  GemmResult<TIn, TOut> r;
  const std::vector<TOut> c_memory = c.download();
  r.c = gather(c_at, c_memory);
  r.bias_grad = bias_grad.download();
  r.padding_intact =
      same_bits(place(c_at, r.c), c_memory) && c.margins_intact() && bias_grad.margins_intact();
  const auto fetch = [&](const auto& array, auto& to) {
    const auto memory = array.download();
    to = gather(c_at, memory);
    r.padding_intact =
        r.padding_intact && array.margins_intact() && same_bits(place(c_at, to), memory);
  };
  if (has_aux) fetch(aux, r.aux);
  if (has_aux_up) fetch(aux_up, r.aux_up);
  if (has_c_up) fetch(c_up, r.c_up);
  return r;
}

// Returns the largest error of rounding x to T: half an ulp, or half of the smallest subnormal.
template <typename T>
double rounding_error(double x) {
  const double smallest = std::is_same_v<T, f16> ? 0x1p-25 : 0x1p-134;
  return std::max(0.5 * ulp<T>() * std::abs(x), smallest);
}

// Returns the largest ratio error(i) / allowed(i) over all elements. A test passes with at most 1;
// NaN counts as infinite.
template <typename T, typename Want, typename Allowed>
double worst_ratio(const std::vector<T>& got, Want&& want, Allowed&& allowed) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double expected = want(i), error = std::abs(to_f64(got[i]) - expected);
    if (error == 0) continue;
    // The allowed result is `expected` with an error below allowed(i), then rounded to T.
    const double bound = allowed(i) + rounding_error<T>(std::abs(expected) + allowed(i));
    worst = std::max(worst,
                     std::isnan(error) ? std::numeric_limits<double>::infinity() : error / bound);
  }
  return worst;
}

// Returns the error of c, divided by the bound for a sum of k + `others` terms. The reference
// includes bias, residual and c's initial value.
template <typename TIn, typename TOut>
double product_ratio(const GemmResult<TIn, TOut>& got, const GemmCase<TIn, TOut>& g,
                     const RefProduct& ref, int others = 3) {
  const auto c0 = [&](size_t i) { return g.accumulate ? to_f64(g.c[i]) : 0.; };
  const auto bias = [&](size_t i) { return g.bias.empty() ? 0. : to_f64(g.bias[i % size_t(g.n)]); };
  const auto residual = [&](size_t i) { return g.residual.empty() ? 0. : to_f64(g.residual[i]); };
  return worst_ratio(
      got.c, [&](size_t i) { return c0(i) + ref.value[i] + bias(i) + residual(i); },
      [&](size_t i) {
        return sum_error(
            g.k, others,
            ref.magnitude[i] + std::abs(c0(i)) + std::abs(bias(i)) + std::abs(residual(i)));
      });
}

}  // namespace shale::test
