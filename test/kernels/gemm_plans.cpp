// Tests the hand-written GPU GEMM kernels plan by plan: every tile and split, independent of the
// choices of gemm_plan().

#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using kernels::Epilogue;
using kernels::GemmEngine;
using kernels::GemmPlan;
using kernels::GemmTile;

constexpr GemmTile kTiles[] = {GemmTile::k64x64, GemmTile::k128x64, GemmTile::k128x128,
                               GemmTile::k128x256};

template <typename T>
bool has_kernel(GemmTile tile, bool a_transposed, bool b_transposed) {
  kernels::GemmProblem problem;
  problem.a = {.data = nullptr, .dtype = dtype_of<T>, .ld = 0, .transposed = a_transposed};
  problem.b = {.data = nullptr, .dtype = dtype_of<T>, .ld = 0, .transposed = b_transposed};
  return kernels::has_kernel(problem, tile);
}

// Calls fn(plan) for each kernel that supports this layout. With layout 2, k is split into three
// parts.
template <typename T, typename Fn>
void for_plans(int layout, Fn&& fn) {
  for (const GemmTile tile : kTiles) {
    if (!has_kernel<T>(tile, layout & 1, layout & 2)) continue;
    fn(GemmPlan{GemmEngine::kOwn, tile, layout == 2 ? 3 : 1});
  }
}

// Sizes have more than a tile in both directions, and more k stages than the ring has slots; the
// last stage is ragged.
TEMPLATE_TEST_CASE("every tile of the GPU's gemm agrees with f64 whether k is split or not",
                   "[gemm]", float, bf16, f16) {
  for (int layout = 0; layout < 4; ++layout) {
    for_plans<TestType>(layout, [&](const GemmPlan& plan) {
      auto g = random_case<TestType, TestType>(rows_of(plan.tile) + 7, cols_of(plan.tile) + 9, 169);
      g.a_transposed = layout & 1, g.b_transposed = layout & 2;
      g.bias = randn<TestType>(g.n, 3);
      // Lines are multiples of 16 bytes, so that operands are copied to shared memory without
      // repacking, and c is accessed in packs.
      g.align = 8;
      g.plan = &plan;
      const RefProduct ref = ref_product(to_f64(g.a), to_f64(g.b), g.m, g.n, g.k);
      std::vector<TestType> first;
      for (const Exec& exec : only_gpus(devices_with({&kernels::gemm}))) {
        if (!can_run(plan.tile, kernels::gemm_means(exec.device))) continue;
        CAPTURE(to_string(exec.device), layout, rows_of(plan.tile), cols_of(plan.tile));
        const auto got = run_gemm(exec, g);
        CHECK(product_ratio(got, g, ref, 1) <= 1);
        CHECK(got.padding_intact);
        if (exec.device.type != DeviceType::kEmu) continue;
        if (first.empty()) first = got.c;
        CHECK(same_bits(got.c, first));  // the order of blocks and threads does not change bits
      }
    });
  }
}

TEST_CASE("the GPU's gemm computes exact products in every part of a tile", "[gemm]") {
  for (const GemmTile tile : kTiles) {
    const GemmPlan plan{GemmEngine::kOwn, tile, 1};
    // Element c[i][j] is 256 i + j, which encodes its row and column.
    auto g = random_case<bf16, float>(rows_of(tile), cols_of(tile), 32);
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t l = 0; l < g.k; ++l) {
        g.a[size_t(i * g.k + l)] = make<bf16>(l == 0 ? double(i) : l == 31 ? 1. : 0.);
      }
    }
    for (int64_t l = 0; l < g.k; ++l) {
      for (int64_t j = 0; j < g.n; ++j) {
        g.b[size_t(l * g.n + j)] = make<bf16>(l == 0 ? 256. : l == 31 ? double(j) : 7.);
      }
    }
    g.plan = &plan;
    for (const Exec& exec : only_gpus(devices_with({&kernels::gemm}))) {
      if (!can_run(tile, kernels::gemm_means(exec.device))) continue;
      const auto got = run_gemm(exec, g).c;
      for (size_t i = 0; i < got.size(); ++i) {
        const auto row = float(int64_t(i) / g.n), col = float(int64_t(i) % g.n);
        REQUIRE(got[i] == 256 * row + col);
      }
    }
  }
}

TEMPLATE_TEST_CASE("the GPU's gemm adds its parts of k in one order", "[gemm]", float, bf16) {
  auto g = random_case<TestType, float>(70, 73, 320);
  g.epilogue = Epilogue::kDGeluErf;
  g.aux = randn<TestType>(g.m * g.n, 3);
  g.bias_grad = randn<float>(g.n, 4);
  g.accumulate_bias_grad = true;
  const auto run = [&](const Exec& exec, int splits) {
    const GemmPlan plan{GemmEngine::kOwn, GemmTile::k64x64, splits};
    g.plan = &plan;
    return run_gemm(exec, g);
  };
  std::vector<std::vector<float>> results, sums;
  for (const Exec& exec : only_gpus(devices_with({&kernels::gemm}))) {
    const auto split = run(exec, 4), again = run(exec, 4);
    CHECK_FALSE(same_bits(split.c, run(exec, 1).c));  // shows that k was split
    CHECK(same_bits(split.c, again.c));
    CHECK(same_bits(split.bias_grad, again.bias_grad));
    // Tanh on the emulator differs from a GPU's.
    if (exec.device.type != DeviceType::kEmu) continue;
    results.push_back(split.c);
    sums.push_back(split.bias_grad);
    CHECK(same_bits(results.front(), results.back()));
    CHECK(same_bits(sums.front(), sums.back()));
  }
}

TEST_CASE("a plan without a kernel is refused by name", "[gemm]") {
  for (const Exec& exec : only_gpus(devices_with({&kernels::gemm}))) {
    auto g = random_case<float, float>(3, 5, 2);
    const auto refused = [&](const GemmPlan& plan) {
      g.plan = &plan;
      return message_of<UnavailableError>([&] { run_gemm(exec, g); });
    };
    CHECK(refused({GemmEngine::kOwn, GemmTile::k128x256, 1}) ==
          "gemm: no kernel for fp32 with tiles of 128x256 and 1 splits");
    if (exec.device.type == DeviceType::kEmu) {
      Exec small = exec;
      small.device.arch = 89;
      auto halves = random_case<bf16, float>(3, 5, 2);
      const GemmPlan large{GemmEngine::kOwn, GemmTile::k128x256, 1};
      halves.plan = &large;
      CHECK(contains(message_of<UnavailableError>([&] { run_gemm(small, halves); }),
                     "more shared memory than the 99 KiB that a block has on emu:89"));
    }
    CHECK(contains(refused({GemmEngine::kOwn, GemmTile::k64x64, 0}), "0 splits"));
    if (exec.device.type == DeviceType::kEmu) {
      CHECK(contains(refused({GemmEngine::kVendor, {}, 1}), "cuBLASLt"));
    }
  }
}

}  // namespace
}  // namespace shale::test
