// Tests SwiGLU in epilogues of the gemm slot, and the elementwise slot that recomputes the
// activation.
#include <cmath>
#include <tuple>

#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::test {
namespace {

using kernels::Epilogue;
using kernels::GemmEngine;
using kernels::GemmPlan;
using kernels::GemmTile;

using AllTypes =
    std::tuple<Types<float, float>, Types<bf16, bf16>, Types<bf16, float>, Types<f16, f16>>;

constexpr GemmTile kTiles[] = {GemmTile::k64x64,
                               GemmTile::k128x64,
                               GemmTile::k128x128,
                               GemmTile::k128x256,
                               GemmTile::kHopper128x128,
                               GemmTile::kHopper128x256,
                               GemmTile::kHopperPingPong128x128};

// Sizes: one element; lines of one element; an empty sum; more than a tile in each direction.
const std::vector<GemmSize>& sizes() {
  static const std::vector<GemmSize> all{{1, 1, 1},   {1, 70, 20},    {3, 16, 8},
                                         {40, 1, 33}, {33, 61, 0},    {5, 33, 1},
                                         {0, 7, 5},   {140, 201, 90}, {20, 30, 1050}};
  return all;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double ref_silu(double x) {
  return x * sigmoid(x);
}
double ref_dsilu(double x) {
  return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

// Bounds the absolute error of silu(x) and of its derivative in f32: 16 ulps of max(1, |x|). The
// sigmoid has a relative error of a few ulps, plus |x| (1 - sigmoid(x)) ulps because exp's argument
// is rounded. silu is the sigmoid times x. The derivative is the sigmoid times 1 + x (1 -
// sigmoid(x)). Neither factor exceeds 1.3 max(1, |x|).
double silu_error(double x) {
  return 16 * 0x1p-24 * std::max(1., std::abs(x));
}

// Makes inputs with which silu covers its nonlinear range: the GEMM results have a standard
// deviation of 2.
template <typename TIn, typename TOut>
GemmCase<TIn, TOut> forward_case(const GemmSize& s) {
  auto g = random_case<TIn, TOut>(s.m, s.n, s.k);
  const double std = 2 / std::sqrt(double(std::max<int64_t>(s.k, 1)));
  g.b = randn<TIn>(s.k * s.n, 2, 0, std);
  g.b_up = randn<TIn>(s.k * s.n, 3, 0, std);
  g.b_transposed = true;
  g.epilogue = Epilogue::kSwiGlu;
  g.aux.assign(size_t(s.m * s.n), make<TIn>(std::nan("")));
  g.aux_up = g.aux;
  return g;
}

template <typename TIn, typename TOut>
GemmCase<TIn, TOut> backward_case(const GemmSize& s) {
  auto g = random_case<TIn, TOut>(s.m, s.n, s.k);
  g.epilogue = Epilogue::kDSwiGlu;
  g.aux = randn<TIn>(s.m * s.n, 4, 0, 2);
  g.aux_up = randn<TIn>(s.m * s.n, 5);
  return g;
}

template <typename TIn, typename TOut>
void check_forward(const GemmCase<TIn, TOut>& g, const GemmResult<TIn, TOut>& got) {
  const auto check_product = [&](const std::vector<TIn>& b, const std::vector<TIn>& stored) {
    const RefProduct ref = ref_product(to_f64(g.a), to_f64(b), g.m, g.n, g.k);
    CHECK(worst_ratio(
              stored, [&](size_t i) { return ref.value[i]; },
              [&](size_t i) { return sum_error(g.k, 0, ref.magnitude[i]); }) <= 1);
  };
  check_product(g.b, got.aux);
  check_product(g.b_up, got.aux_up);
  // The reference takes the stored GEMM results, so the error no longer depends on k: it is silu's,
  // and a multiplication's.
  const auto want = [&](size_t i) { return ref_silu(to_f64(got.aux[i])) * to_f64(got.aux_up[i]); };
  CHECK(worst_ratio(got.c, want, [&](size_t i) {
          return silu_error(to_f64(got.aux[i])) * std::abs(to_f64(got.aux_up[i])) +
                 0x1p-24 * std::abs(want(i));
        }) <= 1);
  CHECK(got.padding_intact);
}

template <typename TIn, typename TOut>
void check_backward(const GemmCase<TIn, TOut>& g, const GemmResult<TIn, TOut>& got) {
  const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), g.m, g.n, g.k);
  // Checks that a result is the GEMM's value times a factor. The bound includes the factor's own
  // error and up to two multiplications.
  const auto check_times = [&](const std::vector<TOut>& result, auto&& factor,
                               auto&& factor_error) {
    CHECK(worst_ratio(
              result, [&](size_t i) { return ref.value[i] * factor(i); },
              [&](size_t i) {
                const double error = sum_error(g.k, 0, ref.magnitude[i]);
                const double largest = std::abs(ref.value[i]) + error;
                const double of_factor = factor_error(i) + 2 * 0x1p-24 * std::abs(factor(i));
                return error * std::abs(factor(i)) + largest * of_factor;
              }) <= 1);
  };
  const auto gate = [&](size_t i) { return to_f64(g.aux[i]); };
  const auto up = [&](size_t i) { return to_f64(g.aux_up[i]); };
  check_times(
      got.c, [&](size_t i) { return up(i) * ref_dsilu(gate(i)); },
      [&](size_t i) { return std::abs(up(i)) * silu_error(gate(i)); });
  check_times(
      got.c_up, [&](size_t i) { return ref_silu(gate(i)); },
      [&](size_t i) { return silu_error(gate(i)); });
  CHECK(got.padding_intact);
}

// Calls fn(exec, plan) for the tiles that a device has for these operands.
template <typename T, typename Fn>
void for_tiles(Fn&& fn) {
  for (const GemmTile tile : kTiles) {
    if (dtype_of<T> == DType::kF32 && tile != GemmTile::k64x64 && tile != GemmTile::k128x128) {
      continue;
    }
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    for (const Exec& exec : only_gpus(devices_with({&kernels::gemm}))) {
      if (!can_run(tile, kernels::gemm_means(exec.device))) continue;
      CAPTURE(to_string(exec.device), name_of(tile));
      fn(exec, plan);
    }
  }
}

template <typename T>
std::vector<T> activation_of(const Exec& exec, const std::vector<T>& gate,
                             const std::vector<T>& up) {
  const DeviceArray<T> d_gate(exec, gate), d_up(exec, up), y(exec, int64_t(gate.size()));
  kernels::swiglu_fwd(exec, {.gate = d_gate.view(), .up = d_up.view(), .y = y.view()});
  CHECK(y.margins_intact());
  return y.download();
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("gemm with SwiGLU keeps both products, and c is the SwiGLU of what is kept",
                        "[gemm]", AllTypes) {
  for (const GemmSize& s : sizes()) {
    auto g = forward_case<typename TestType::In, typename TestType::Out>(s);
    for (const int64_t pad : {0, 3}) {
      g.pad = pad;
      for (const Exec& exec : devices_with({&kernels::gemm})) {
        CAPTURE(to_string(exec.device), s.m, s.n, s.k, pad);
        check_forward(g, run_gemm(exec, g));
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("gemm gives the gradients of SwiGLU's gate and up", "[gemm]", AllTypes) {
  for (const GemmSize& s : sizes()) {
    auto g = backward_case<typename TestType::In, typename TestType::Out>(s);
    for (const int64_t pad : {0, 3}) {
      g.pad = pad;
      for (const Exec& exec : devices_with({&kernels::gemm})) {
        CAPTURE(to_string(exec.device), s.m, s.n, s.k, pad);
        check_backward(g, run_gemm(exec, g));
      }
    }
  }
}

// Sizes: several tiles in each direction, the last ones ragged, and more stages than the ring has
// slots.
TEMPLATE_TEST_CASE("every tile pairs the columns of SwiGLU's two products", "[gemm]", float, bf16,
                   f16) {
  for_tiles<TestType>([](const Exec& exec, const GemmPlan& plan) {
    auto g = forward_case<TestType, TestType>({140, cols_of(plan.tile) / 2 + 24, 456});
    g.plan = &plan;
    for (const int64_t align : {8, 1}) {  // 8: c is stored in TMA boxes or packs; 1: by element
      g.align = align;
      g.pad = align == 1 ? 3 : 0;
      CAPTURE(align);
      const auto got = run_gemm(exec, g);
      check_forward(g, got);
      CHECK(same_bits(got.c, activation_of(exec, got.aux, got.aux_up)));
      GemmPlan clusters = plan;
      clusters.cluster = cluster_blocks(plan.tile);
      auto again = g;
      again.plan = &clusters;
      const auto same = run_gemm(exec, again);
      CHECK(same_bits(same.c, got.c));
      CHECK(same_bits(same.aux, got.aux));
      CHECK(same_bits(same.aux_up, got.aux_up));
    }
  });
}

// Operands are small integers, so sums are exact in any order.
TEST_CASE("every tile, k cut or not, gives the same gradients of SwiGLU", "[gemm]") {
  const GemmPlan first{GemmEngine::kOwn, GemmTile::k64x64, 1};
  for_tiles<bf16>([&](const Exec& exec, GemmPlan plan) {
    auto g = backward_case<bf16, bf16>({140, cols_of(plan.tile) + 24, 456});
    g.a = rand_int<bf16>(g.m * g.k, 1, -2, 2);
    g.b = rand_int<bf16>(g.k * g.n, 2, -1, 1);
    g.align = 8;
    g.plan = &first;
    const auto want = run_gemm(exec, g);
    check_backward(g, want);
    for (const bool is_cut : {false, true}) {
      if (is_cut && can_share(plan.tile)) plan.shares = 10;
      if (is_cut && !is_hopper(plan.tile)) plan.splits = 3;
      g.plan = &plan;
      CAPTURE(is_cut);
      const auto got = run_gemm(exec, g);
      CHECK(same_bits(got.c, want.c));
      CHECK(same_bits(got.c_up, want.c_up));
      CHECK(got.padding_intact);
    }
  });
}

TEST_CASE("SwiGLU has the same bits under every order of the emulator's threads", "[gemm]") {
  for (const GemmTile tile :
       {GemmTile::k128x128, GemmTile::kHopper128x256, GemmTile::kHopperPingPong128x128}) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    auto forward = forward_case<bf16, bf16>({200, 136, 328});
    auto backward = backward_case<bf16, bf16>({200, 136, 328});
    forward.align = backward.align = 8;
    forward.plan = backward.plan = &plan;
    GemmResult<bf16, bf16> first, first_back;
    for (const auto& options : {emulator_orders()[0], emulator_orders()[1], emulator_orders()[4]}) {
      const auto emulator = emulator_with_kernels(options);
      CAPTURE(describe(options), name_of(tile));
      const auto got = run_gemm(emulator->exec(), forward);
      const auto back = run_gemm(emulator->exec(), backward);
      if (first.c.empty()) first = got, first_back = back;
      CHECK(same_bits(got.aux, first.aux));
      CHECK(same_bits(got.aux_up, first.aux_up));
      CHECK(same_bits(got.c, first.c));
      CHECK(same_bits(back.c, first_back.c));
      CHECK(same_bits(back.c_up, first_back.c_up));
    }
  }
}

TEST_CASE("SwiGLU on CPUs has the same bits for any number of threads", "[gemm]") {
  const Exec& cpu = devices().front();
  const auto forward = forward_case<bf16, bf16>({900, 800, 100});
  CHECK(
      same_bits_for_any_threads(cpu, [&](const Exec& exec) { return run_gemm(exec, forward).c; }));
  const auto backward = backward_case<bf16, bf16>({900, 800, 100});
  CHECK(
      same_bits_for_any_threads(cpu, [&](const Exec& exec) { return run_gemm(exec, backward).c; }));
  CHECK(same_bits_for_any_threads(cpu,
                                  [&](const Exec& exec) { return run_gemm(exec, backward).c_up; }));
}

TEMPLATE_TEST_CASE("swiglu_fwd agrees with f64, and with gemm's epilogue to the bit",
                   "[kernels][elementwise]", float, bf16, f16) {
  for (const int64_t n : {0, 1, 15, 17, 5000}) {
    const auto gate = randn<TestType>(n, 1, 0, 4), up = randn<TestType>(n, 2);
    for (const Exec& exec : devices_with({&kernels::swiglu_fwd, &kernels::gemm})) {
      CAPTURE(to_string(exec.device), n);
      const auto want = [&](size_t i) { return ref_silu(to_f64(gate[i])) * to_f64(up[i]); };
      CHECK(worst_ratio(activation_of(exec, gate, up), want, [&](size_t i) {
              return silu_error(to_f64(gate[i])) * std::abs(to_f64(up[i])) +
                     0x1p-24 * std::abs(want(i));
            }) <= 1);
    }
  }
  for (const Exec& exec : devices_with({&kernels::swiglu_fwd, &kernels::gemm})) {
    const auto got = run_gemm(exec, forward_case<TestType, TestType>({37, 70, 20}));
    CHECK(same_bits(got.c, activation_of(exec, got.aux, got.aux_up)));
  }
}

TEST_CASE("SwiGLU far from zero is the product, or zero; a NaN stays one", "[gemm]") {
  const float nan = std::nanf("");
  const std::vector<float> gate = {200, -200, 1e30f, -1e30f, nan, 1}, up = {3, 3, 2, 2, 1, nan};
  for (const Exec& exec : devices_with({&kernels::swiglu_fwd, &kernels::gemm})) {
    CAPTURE(to_string(exec.device));
    const auto y = activation_of(exec, gate, up);
    CHECK(y[0] == 600);
    CHECK(std::abs(y[1]) < 1e-30f);
    CHECK(y[2] == 2e30f);
    CHECK(std::abs(y[3]) < 1e-6f);
    CHECK(std::isnan(y[4]));
    CHECK(std::isnan(y[5]));

    auto g = backward_case<float, float>({1, 6, 1});
    g.a = {1}, g.b.assign(6, 1), g.aux = gate, g.aux_up = up;
    const auto back = run_gemm(exec, g);
    CHECK(back.c[0] == 3);  // for so large a gate, silu is linear and the gate's gradient is `up`
    CHECK(std::abs(back.c[1]) < 1e-30f);
    CHECK(back.c[2] == 2);
    CHECK(std::abs(back.c[3]) < 1e-6f);
    CHECK(std::isnan(back.c[4]));
    CHECK(std::isnan(back.c[5]));
    CHECK(back.c_up[0] == 200);
    CHECK(back.c_up[2] == 1e30f);
    CHECK(std::isnan(back.c_up[4]));
    // The NaN of `up` does not affect its own gradient.
    CHECK(std::abs(back.c_up[5] - ref_silu(1)) < 1e-6);
  }
}

TEST_CASE("gemm names what a SwiGLU epilogue lacks, or cannot have", "[gemm]") {
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    const DeviceArray<float> f(exec, 4096);
    const DeviceArray<bf16> h(exec, 4096);
    const View w = f.view({3, 5}, {1, 3}), c = f.view({4, 5});
    const kernels::GemmArgs forward{.a = f.view({4, 3}),
                                    .b = w,
                                    .c = c,
                                    .epilogue = Epilogue::kSwiGlu,
                                    .aux = c,
                                    .b_up = w,
                                    .aux_up = c};
    const kernels::GemmArgs backward{.a = f.view({4, 3}),
                                     .b = w,
                                     .c = c,
                                     .epilogue = Epilogue::kDSwiGlu,
                                     .aux = c,
                                     .aux_up = c,
                                     .c_up = c};
    const auto shape_error = [&](kernels::GemmArgs bad, auto&& change) {
      change(bad);
      return message_of<ShapeError>([&] { kernels::gemm(exec, bad); });
    };
    CHECK(contains(shape_error(forward, [](auto& g) { g.b_up = {}; }), "b_up is missing"));
    CHECK(contains(shape_error(forward, [](auto& g) { g.aux = {}; }), "aux is missing"));
    CHECK(contains(shape_error(forward, [](auto& g) { g.aux_up = {}; }), "aux_up is missing"));
    CHECK(contains(shape_error(forward, [&](auto& g) { g.c_up = c; }), "c_up is given"));
    CHECK(contains(shape_error(backward, [](auto& g) { g.c_up = {}; }), "c_up is missing"));
    CHECK(contains(shape_error(backward, [&](auto& g) { g.b_up = w; }), "b_up is given"));
    CHECK(contains(shape_error(forward, [&](auto& g) { g.bias = f.view({5}); }),
                   "incompatible with bias"));
    CHECK(contains(shape_error(backward, [&](auto& g) { g.residual = c; }),
                   "incompatible with bias"));
    CHECK(contains(shape_error(forward, [](auto& g) { g.accumulate = true; }), "accumulate"));
    CHECK(contains(shape_error(backward, [&](auto& g) { g.bias_grad = f.view({5}); }),
                   "bias_grad is given"));
    CHECK(shape_error(forward, [&](auto& g) {
            g.b_up = f.view({3, 6}, {1, 3});
          }) == "gemm: b_up is fp32[3,6], expected [3,5]");
    CHECK(shape_error(forward,
                      [&](auto& g) {
                        g.b_up = f.view({3, 5});
                      }) ==
          "gemm: b_up is fp32[3,5] with strides [5,1], expected stride 1 in the first dimension "
          "with a SwiGLU epilogue");
    CHECK(contains(shape_error(forward, [&](auto& g) { g.b = f.view({3, 5}); }), "stride 1"));
    CHECK(contains(shape_error(forward,
                               [&](auto& g) {
                                 g.a = f.view({4, 3}, {1, 4});
                               }),
                   "a is fp32[4,3] with strides [1,4], expected stride 1 in the last"));
    CHECK(contains(shape_error(backward, [&](auto& g) { g.c_up = f.view({4, 4}); }), "c_up"));
    kernels::GemmArgs mixed = forward;
    mixed.b_up = h.view({3, 5}, {1, 3});
    CHECK(message_of<DTypeError>([&] { kernels::gemm(exec, mixed); }) ==
          "gemm: b_up is bf16[3,5], expected fp32");
  }
}

TEST_CASE("a plan that splits SwiGLU's products, or has too narrow a tile, is refused", "[gemm]") {
  auto g = forward_case<bf16, bf16>({8, 16, 64});
  for (const Exec& exec : only_gpus(devices_with({&kernels::gemm}))) {
    for (const GemmPlan& plan : {GemmPlan{GemmEngine::kOwn, GemmTile::k64x64, 2},
                                 GemmPlan{GemmEngine::kOwn, GemmTile::kHopper128x64, 1}}) {
      g.plan = &plan;
      CHECK(contains(message_of<UnavailableError>([&] { run_gemm(exec, g); }),
                     "gemm: no kernel for bf16 with tiles of"));
    }
  }
}

}  // namespace shale::test
