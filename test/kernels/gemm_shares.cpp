// Tests Hopper GEMM tiles that several blocks share (stream-K), on the emulator and on a GPU of
// compute capability 9.0 if there is one.
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::test {
namespace {

using kernels::Epilogue;
using kernels::GemmEngine;
using kernels::GemmPlan;
using kernels::GemmTile;

constexpr GemmTile kTiles[] = {GemmTile::kHopper128x64, GemmTile::kHopper128x128,
                               GemmTile::kHopper128x256};

// Makes a case with four tiles in two tile rows, as in a cluster of two.
template <typename TIn, typename TOut>
GemmCase<TIn, TOut> four_tiles(GemmTile tile, int64_t k) {
  auto g = random_case<TIn, TOut>(200, cols_of(tile) + 40, k);
  g.align = 8;
  return g;
}

// Operands are small integers, so sums are exact in any order.
template <typename TIn, typename TOut>
void make_exact(GemmCase<TIn, TOut>& g) {
  g.a = rand_int<TIn>(g.m * g.k, 1, -2, 2);
  g.b = rand_int<TIn>(g.k * g.n, 2, -1, 1);
  if (!g.b_up.empty()) g.b_up = rand_int<TIn>(g.k * g.n, 3, -1, 1);
}

GemmPlan whole(GemmTile tile) {
  return {GemmEngine::kOwn, tile, 1};
}
GemmPlan shared(GemmTile tile, int shares, int cluster = 1) {
  return {GemmEngine::kOwn, tile, 1, cluster, shares};
}

template <typename TIn, typename TOut>
void check_same(const GemmResult<TIn, TOut>& got, const GemmResult<TIn, TOut>& want) {
  CHECK(same_bits(got.c, want.c));
  CHECK(same_bits(got.aux, want.aux));
  CHECK(same_bits(got.aux_up, want.aux_up));
  CHECK(same_bits(got.c_up, want.c_up));
  CHECK(same_bits(got.bias_grad, want.bias_grad));
  CHECK(got.padding_intact);
}

}  // namespace

// Each tile has 4 stages. Numbers of shares: one for all tiles, fewer than tiles, a number for
// which some shares have parts of two tiles, the same number per tile, one per stage.
TEST_CASE("shares of tiles make the sums of whole ones", "[gemm]") {
  for (const GemmTile tile : kTiles) {
    auto g = four_tiles<bf16, float>(tile, 232);
    make_exact(g);
    for (const Exec& exec : hopper_devices()) {
      const GemmPlan alone = whole(tile);
      g.plan = &alone;
      const auto want = run_gemm(exec, g);
      const DeviceCounters counters(exec);
      for (const int shares : {1, 3, 7, 12, 16}) {
        CAPTURE(to_string(exec.device), name_of(tile), shares);
        const GemmPlan plan = shared(tile, shares);
        g.plan = &plan;
        check_same(run_gemm(counters.exec(), g), want);
        CHECK(counters.are_zero());
      }
    }
  }
}

TEMPLATE_TEST_CASE("tiles are shared in every layout, with counters and without", "[gemm]", bf16,
                   f16) {
  const GemmTile tile = GemmTile::kHopper128x128;
  const GemmPlan alone = whole(tile), plan = shared(tile, 7);
  auto g = four_tiles<TestType, TestType>(tile, 232);
  make_exact(g);
  for (int layout = 0; layout < 3; ++layout) {  // all layouts but the one with both transposed
    g.a_transposed = layout & 1, g.b_transposed = layout & 2;
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), layout);
      g.plan = &alone;
      const auto want = run_gemm(exec, g);
      g.plan = &plan;
      check_same(run_gemm(exec, g), want);
      const DeviceCounters counters(exec);
      check_same(run_gemm(counters.exec(), g), want);
    }
  }
}

TEST_CASE("shares are added in one order, whoever is last", "[gemm]") {
  for (const GemmTile tile : {GemmTile::kHopper128x64, GemmTile::kHopper128x256}) {
    auto g = four_tiles<bf16, float>(tile, 232);
    const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), g.m, g.n, g.k);
    const GemmPlan alone = whole(tile);
    g.plan = &alone;
    const auto other = run_gemm(emulator_with_kernels({})->exec(), g).c;
    for (const int shares : {9, 12}) {
      const GemmPlan plan = shared(tile, shares);
      g.plan = &plan;
      const auto first = run_gemm(emulator_with_kernels({})->exec(), g);
      CHECK(product_ratio(first, g, ref) <= 1);
      CHECK_FALSE(same_bits(first.c, other));  // shows that tiles were shared
      for (const auto& options : emulator_orders()) {
        const auto emulator = emulator_with_kernels(options);
        CAPTURE(describe(options), name_of(tile), shares);
        Exec exec = emulator->exec();
        exec.persistent_blocks = shares == 9 ? 3 : 64;
        const DeviceCounters counters(exec);
        CHECK(same_bits(run_gemm(counters.exec(), g).c, first.c));
      }
    }
  }
}

TEST_CASE("what comes with a product comes once to tiles that are shared", "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const GemmPlan alone = whole(tile), plan = shared(tile, 7);
    for (const Epilogue epilogue :
         {Epilogue::kNone, Epilogue::kGeluTanh, Epilogue::kDGeluTanh, Epilogue::kDSwiGlu}) {
      auto g = four_tiles<bf16, bf16>(tile, 200);
      make_exact(g);
      g.epilogue = epilogue;
      g.aux = randn<bf16>(g.m * g.n, 3);
      const bool has_bias = epilogue == Epilogue::kNone || epilogue == Epilogue::kGeluTanh;
      if (has_bias) g.bias = randn<bf16>(g.n, 4);
      if (epilogue == Epilogue::kNone) g.residual = randn<bf16>(g.m * g.n, 5);
      if (epilogue == Epilogue::kDGeluTanh) g.bias_grad = randn<float>(g.n, 6);
      if (epilogue == Epilogue::kDSwiGlu) g.aux_up = randn<bf16>(g.m * g.n, 7);
      for (const Exec& exec : hopper_devices()) {
        for (const bool aligned : {true, false}) {
          CAPTURE(to_string(exec.device), name_of(tile), int(epilogue), aligned);
          g.align = aligned ? 8 : 1;
          g.pad = aligned ? 0 : 3;
          g.plan = &alone;
          const auto want = run_gemm(exec, g);
          g.plan = &plan;
          check_same(run_gemm(exec, g), want);
        }
      }
    }
  }
}

TEST_CASE("SwiGLU's two products are shared together", "[gemm]") {
  for (const GemmTile tile : {GemmTile::kHopper128x128, GemmTile::kHopper128x256}) {
    auto g = random_case<bf16, bf16>(200, cols_of(tile) / 2 + 24, 200);
    g.b_up.resize(g.b.size());
    make_exact(g);
    g.align = 8;
    g.b_transposed = true;
    g.epilogue = Epilogue::kSwiGlu;
    g.aux = g.aux_up = std::vector<bf16>(size_t(g.m * g.n));
    const GemmPlan alone = whole(tile), plan = shared(tile, 7);
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), name_of(tile));
      g.plan = &alone;
      const auto want = run_gemm(exec, g);
      g.plan = &plan;
      check_same(run_gemm(exec, g), want);
    }
  }
}

TEST_CASE("clusters share tiles as blocks do", "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const int blocks = cluster_blocks(tile);
    if (blocks == 1) continue;
    auto g = random_case<bf16, bf16>(330, cols_of(tile) + 40, 232);  // has three rows of tiles
    g.align = 8;
    g.b_transposed = true;
    // Each tile has three shares, so that both plans split tiles at the same places in k.
    const GemmPlan alone = shared(tile, 3 * 6), clusters = shared(tile, 3 * 4, blocks);
    const GemmPlan across = shared(tile, 7, blocks);
    for (const auto& options : {emulator_orders()[0], emulator_orders()[1], emulator_orders()[4]}) {
      const auto emulator = emulator_with_kernels(options);
      CAPTURE(describe(options), name_of(tile));
      Exec exec = emulator->exec();
      exec.persistent_blocks = 4;
      const DeviceCounters counters(exec);
      g.plan = &alone;
      const auto want = run_gemm(exec, g).c;
      g.plan = &clusters;
      CHECK(same_bits(run_gemm(counters.exec(), g).c, want));
      auto exact = g;
      make_exact(exact);
      exact.plan = &across;
      const auto got = run_gemm(counters.exec(), exact).c;
      exact.plan = &alone;
      CHECK(same_bits(got, run_gemm(exec, exact).c));
      CHECK(counters.are_zero());
    }
  }
}

// c has 12 x 12 tiles. The GPU in this test has 132 SMs, which process 132 tiles in one round.
TEST_CASE("tiles of whole rounds come before those that are shared", "[gemm]") {
  const GemmTile tile = GemmTile::kHopper128x64;
  auto g = random_case<bf16, bf16>(12 * 128, 12 * 64, 136);
  make_exact(g);
  g.align = 8;
  const GemmPlan alone = whole(tile), plan = shared(tile, 20);
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(to_string(exec.device));
    g.plan = &alone;
    const auto want = run_gemm(exec, g);
    g.plan = &plan;
    const DeviceCounters counters(exec);
    check_same(run_gemm(counters.exec(), g), want);
    CHECK(counters.are_zero());
  }
}

TEST_CASE("shares that make no sense are refused", "[gemm]") {
  const auto refused = [](const GemmPlan& plan) {
    auto g = four_tiles<bf16, bf16>(GemmTile::kHopper128x128, 136);
    g.plan = &plan;
    const auto emulator = emulator_with_kernels({});
    return message_of<UnavailableError>([&] { run_gemm(emulator->exec(), g); });
  };
  CHECK(contains(refused(shared(GemmTile::kHopper128x128, 13)),
                 "splits k over 13 shares for 4 tiles of kHopper128x128, expected 0 to 12"));
  CHECK(contains(refused(shared(GemmTile::kHopper128x128, -1)), "expected 0 to 12"));
  for (const GemmTile tile : {GemmTile::k128x128, GemmTile::kHopperPingPong128x128}) {
    CHECK(contains(refused(shared(tile, 2)), "splits k over 2 shares for 0 tiles"));
  }
  CHECK(contains(refused({GemmEngine::kOwn, GemmTile::kHopper128x128, 2}), "and 2 splits"));
}

}  // namespace shale::test
