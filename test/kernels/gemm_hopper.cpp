// Tests Hopper's GEMM kernels, independent of the choices of gemm_plan(), on the emulator and on a
// GPU of compute capability 9.0 if there is one.
#include "shale/base/reserved_sms.h"
#include "shale/kernels/cuda/grid.h"
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

constexpr GemmTile kTiles[] = {GemmTile::kHopper128x64, GemmTile::kHopper128x128,
                               GemmTile::kHopper128x256, GemmTile::kHopperPingPong128x128};

}  // namespace

// Two thread blocks process all tiles; on a GPU, the test also uses as many blocks as there are
// SMs. Numbers of pipeline stages: one, an odd number, more than the ring has slots. The last tile
// is ragged in both directions, and the last stage is ragged too.
TEMPLATE_TEST_CASE("Hopper's tiles agree with f64 in every layout and number of stages", "[gemm]",
                   bf16, f16) {
  for (const GemmTile tile : kTiles) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    const int64_t cols = cols_of(tile);
    for (const auto& [m, n, k] :
         {GemmSize{1, 1, 1}, {128, cols, 64}, {300, cols + 72, 200}, {140, 2 * cols + 8, 488}}) {
      auto g = random_case<TestType, TestType>(m, n, k);
      g.align = 8;
      g.plan = &plan;
      const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), m, n, k);
      for (int layout = 0; layout < 3; ++layout) {  // all layouts but the one with both transposed
        g.a_transposed = layout & 1, g.b_transposed = layout & 2;
        for (const Exec& exec : hopper_devices()) {
          CAPTURE(to_string(exec.device), layout, name_of(tile), m, n, k);
          const auto got = run_gemm(exec, g);
          CHECK(product_ratio(got, g, ref) <= 1);
          CHECK(got.padding_intact);
        }
      }
    }
  }
}

// bf16 and f32 results use different TMA boxes; unaligned lines use none.
TEST_CASE("Hopper's tiles add to f32, and add bias and residual, aligned or not", "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    auto sums = random_case<bf16, float>(200, cols_of(tile) + 40, 136);
    sums.a_transposed = true;
    sums.c = randn<float>(sums.m * sums.n, 3);
    sums.accumulate = true;
    auto both = random_case<bf16, bf16>(sums.m, sums.n, sums.k);
    both.b_transposed = true;
    both.bias = randn<bf16>(both.n, 4);
    both.residual = randn<bf16>(both.m * both.n, 5);
    sums.plan = both.plan = &plan;
    const RefProduct ref = ref_product(to_f64(sums.a), to_f64(sums.b), sums.m, sums.n, sums.k);
    for (const Exec& exec : hopper_devices()) {
      for (const bool aligned : {true, false}) {
        sums.align = both.align = aligned ? 8 : 1;
        sums.pad = both.pad = aligned ? 0 : 3;
        CAPTURE(to_string(exec.device), name_of(tile), aligned);
        const auto got_sums = run_gemm(exec, sums), again = run_gemm(exec, sums);
        CHECK(product_ratio(got_sums, sums, ref) <= 1);
        CHECK(got_sums.padding_intact);
        CHECK(same_bits(got_sums.c, again.c));
        const auto got = run_gemm(exec, both);
        CHECK(product_ratio(got, both, ref) <= 1);
        CHECK(got.padding_intact);
      }
    }
  }
}

// gemm_epilogue.cpp compares the portable kernels with f64. Hopper's kernels have the same
// epilogue, but their sums may differ in the last bits. Activations may differ by as much, and by
// one rounding to bf16.
TEST_CASE("Hopper's tiles keep GELU's argument and give its gradient and the bias's", "[gemm]") {
  const GemmPlan portable{GemmEngine::kOwn, GemmTile::k128x128, 1};
  for (const GemmTile tile : kTiles) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    // Operands are small integers, so that sums are exact, and equal in both kernels.
    auto g = random_case<bf16, bf16>(150, cols_of(tile) + 8, 72);
    g.a = rand_int<bf16>(g.m * g.k, 1, -2, 2);
    g.b = rand_int<bf16>(g.k * g.n, 2, -1, 1);
    g.align = 8;
    g.b_transposed = true;
    for (const Epilogue epilogue :
         {Epilogue::kGeluTanh, Epilogue::kGeluErf, Epilogue::kDGeluTanh, Epilogue::kDGeluErf}) {
      const bool forward = epilogue == Epilogue::kGeluTanh || epilogue == Epilogue::kGeluErf;
      g.epilogue = epilogue;
      g.aux = randn<bf16>(g.m * g.n, 3);
      g.bias = forward ? randn<bf16>(g.n, 4) : std::vector<bf16>{};
      g.bias_grad = forward ? std::vector<float>{} : randn<float>(g.n, 5);
      g.accumulate_bias_grad = !forward;
      for (const Exec& exec : hopper_devices()) {
        CAPTURE(to_string(exec.device), name_of(tile), int(epilogue));
        g.plan = &portable;
        const auto want = run_gemm(exec, g);
        g.plan = &plan;
        const auto got = run_gemm(exec, g);
        CHECK(same_bits(got.c, want.c));
        CHECK(same_bits(got.aux, want.aux));
        CHECK(got.padding_intact);
        // A column sum has up to 152 terms of magnitude below 500, added in f32 in another order.
        for (size_t j = 0; j < got.bias_grad.size(); ++j) {
          CHECK(std::abs(got.bias_grad[j] - want.bias_grad[j]) <= 152 * 152 * 500 * 0x1p-24);
        }
      }
    }
  }
}

TEST_CASE("Hopper's tiles give the same bits under every order of threads", "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    auto g = random_case<bf16, bf16>(200, cols_of(tile) + 8, 328);
    g.align = 8;
    g.b_transposed = true;
    g.plan = &plan;
    std::vector<bf16> first;
    for (const auto& options : {emulator_orders()[0], emulator_orders()[1], emulator_orders()[4]}) {
      const auto emulator = emulator_with_kernels(options);
      CAPTURE(describe(options), name_of(tile));
      const auto got = run_gemm(emulator->exec(), g);
      if (first.empty()) first = got.c;
      CHECK(same_bits(got.c, first));
    }
  }
}

// Successive calls share a counter, which each call must reset to zero.
TEST_CASE("Hopper's blocks that take tiles as they come to them give the bits of those in turns",
          "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    auto many = random_case<bf16, bf16>(300, cols_of(tile) + 8, 136);
    auto few = random_case<bf16, bf16>(130, 40, 72);  // as many tiles as blocks: no counter is used
    many.align = few.align = 8;
    many.plan = few.plan = &plan;
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), name_of(tile));
      const DeviceCounters counters(exec);
      CHECK(same_bits(run_gemm(counters.exec(), many).c, run_gemm(exec, many).c));
      CHECK(same_bits(run_gemm(counters.exec(), few).c, run_gemm(exec, few).c));
      CHECK(counters.are_zero());
    }
  }
}

// The rows of tiles form pairs for clusters of two blocks, and one row is left over. Two clusters
// take their tiles from a counter or in a fixed order.
TEST_CASE("Hopper's blocks that share b in a cluster give the bits of those that do not",
          "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const int blocks = cluster_blocks(tile);
    if (blocks == 1) continue;
    const int64_t cols = cols_of(tile);
    for (const auto& [m, n, k] :
         {GemmSize{1, 8, 8}, {256, cols, 64}, {300, cols + 72, 200}, {520, 2 * cols + 8, 488}}) {
      auto g = random_case<bf16, bf16>(m, n, k);
      g.align = 8;
      for (int layout = 0; layout < 3; ++layout) {  // all layouts but the one with both transposed
        g.a_transposed = layout & 1, g.b_transposed = layout & 2;
        const GemmPlan alone{GemmEngine::kOwn, tile, 1};
        const GemmPlan clusters{GemmEngine::kOwn, tile, 1, blocks};
        for (Exec exec : hopper_devices()) {
          CAPTURE(to_string(exec.device), layout, name_of(tile), m, n, k);
          exec.persistent_blocks = 5;  // two clusters, and one block that is left over
          g.plan = &alone;
          const auto want = run_gemm(exec, g);
          g.plan = &clusters;
          CHECK(same_bits(run_gemm(exec, g).c, want.c));
          const DeviceCounters counters(exec);
          for (int i = 0; i < 2; ++i) CHECK(same_bits(run_gemm(counters.exec(), g).c, want.c));
          CHECK(counters.are_zero());
        }
      }
    }
  }
}

TEST_CASE("clusters of Hopper's blocks give the same bits under every order of threads", "[gemm]") {
  for (const GemmTile tile : {GemmTile::kHopper128x256, GemmTile::kHopperPingPong128x128}) {
    const GemmPlan alone{GemmEngine::kOwn, tile, 1}, clusters{GemmEngine::kOwn, tile, 1, 2};
    auto g = random_case<bf16, bf16>(400, cols_of(tile) + 8, 328);
    g.align = 8;
    g.b_transposed = true;
    g.plan = &alone;
    const auto want = run_gemm(emulator_with_kernels({})->exec(), g).c;
    g.plan = &clusters;
    for (const auto& options : emulator_orders()) {
      const auto emulator = emulator_with_kernels(options);
      CAPTURE(describe(options), name_of(tile));
      Exec exec = emulator->exec();
      exec.persistent_blocks = 4;
      const DeviceCounters counters(exec);
      CHECK(same_bits(run_gemm(counters.exec(), g).c, want));
    }
  }
}

TEST_CASE("clusters keep GELU's argument, its gradient and the bias's", "[gemm]") {
  for (const GemmTile tile : {GemmTile::kHopper128x256, GemmTile::kHopperPingPong128x128}) {
    const GemmPlan alone{GemmEngine::kOwn, tile, 1}, clusters{GemmEngine::kOwn, tile, 1, 2};
    for (const auto epilogue : {Epilogue::kGeluTanh, Epilogue::kDGeluTanh}) {
      // Clusters have pairs of tiles of 128 rows. The last two slabs of 64 rows are therefore
      // outside c.
      auto g = random_case<bf16, bf16>(330, cols_of(tile) + 40, 136);
      g.align = 8;
      g.b_transposed = true;
      g.epilogue = epilogue;
      g.aux = randn<bf16>(g.m * g.n, 3);
      if (epilogue == Epilogue::kGeluTanh) g.bias = randn<bf16>(g.n, 4);
      if (epilogue == Epilogue::kDGeluTanh) g.bias_grad = randn<float>(g.n, 5);
      for (const Exec& exec : hopper_devices()) {
        CAPTURE(to_string(exec.device), name_of(tile));
        g.plan = &alone;
        const auto want = run_gemm(exec, g);
        g.plan = &clusters;
        const auto got = run_gemm(exec, g);
        CHECK(same_bits(got.c, want.c));
        CHECK(same_bits(got.aux, want.aux));
        CHECK(same_bits(got.bias_grad, want.bias_grad));
        CHECK(got.padding_intact);
      }
    }
  }
}

TEST_CASE("persistent blocks leave free what collectives hold, with the same bits", "[gemm]") {
  ReservedSms held;
  Exec h100{.device = {.type = DeviceType::kCuda, .arch = 90}};
  h100.held = &held;
  CHECK(kernels::persistent_blocks(h100, 1000) == 132);
  {
    ReservedSms::Hold wide(held, 16), narrow(held, 2);
    CHECK(kernels::persistent_blocks(h100, 1000) == 116);
    CHECK(kernels::persistent_blocks(h100, 100) == 100);
    wide.release();
    CHECK(kernels::persistent_blocks(h100, 1000) == 130);
    CHECK(kernels::persistent_blocks(h100, 1000, 4) == 128);
    CHECK(kernels::persistent_blocks(h100, 10, 4) == 40);
    const ReservedSms::Hold moved = std::move(narrow), all(held, 200);
    CHECK(kernels::persistent_blocks(h100, 1000) == 1);
    CHECK(kernels::persistent_blocks(h100, 1000, 2) == 2);
  }
  CHECK(kernels::persistent_blocks(h100, 1000) == 132);

  const GemmPlan plan{GemmEngine::kOwn, GemmTile::kHopperPingPong128x128, 1};
  auto g = random_case<bf16, bf16>(300, 200, 136);
  g.align = 8;
  g.plan = &plan;
  for (Exec exec : hopper_devices()) {
    const auto want = run_gemm(exec, g);
    const ReservedSms::Hold hold(held, 1);
    exec.held = &held;
    CHECK(same_bits(run_gemm(exec, g).c, want.c));
  }
}

TEST_CASE("clusters are refused where a tile has none", "[gemm]") {
  const auto refused = [](const GemmPlan& plan) {
    auto g = random_case<bf16, bf16>(130, 72, 64);
    g.align = 8;
    g.plan = &plan;
    const auto emulator = emulator_with_kernels({});
    return message_of<UnavailableError>([&] { run_gemm(emulator->exec(), g); });
  };
  CHECK(contains(refused({GemmEngine::kOwn, GemmTile::k128x128, 1, 2}),
                 "k128x128 in clusters of 2 blocks, expected 1"));
  CHECK(contains(refused({GemmEngine::kOwn, GemmTile::kHopper128x64, 1, 2}),
                 "kHopper128x64 in clusters of 2 blocks, expected 1"));
  CHECK(contains(refused({GemmEngine::kOwn, GemmTile::kHopper128x256, 1, 4}),
                 "kHopper128x256 in clusters of 4 blocks, expected 1 or 2"));
}

TEST_CASE("Hopper's tiles are refused elsewhere, and never planned there", "[gemm]") {
  const GemmPlan plan{GemmEngine::kOwn, GemmTile::kHopper128x256, 1};
  auto g = random_case<bf16, bf16>(130, 72, 64);
  const auto emulator = emulator_with_kernels({});
  std::vector<Exec> gpus = {emulator->exec()};
  gpus.front().device.arch = 80;
  for (const Exec& exec : devices_with({&kernels::gemm})) {
    if (exec.device.type == DeviceType::kCuda && exec.device.arch != 90) gpus.push_back(exec);
  }
  for (const Exec& exec : gpus) {
    g.plan = &plan;
    CHECK(contains(message_of<UnavailableError>([&] { run_gemm(exec, g); }),
                   "gemm: kHopper128x256 is for compute capability 9.0"));
    g.plan = nullptr;
    CHECK(run_gemm(exec, g).padding_intact);
  }
}

}  // namespace shale::test
