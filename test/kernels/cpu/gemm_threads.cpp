#include <omp.h>

#include <thread>
#include <vector>

#include "shale/kernels/cpu/gemm_blocks.h"
#include "shale/kernels/cpu/onednn_matmul.h"
#include "shale/kernels/gemm.h"
#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using kernels::Epilogue;

Exec cpu() {
  return devices().front();
}

// Sizes: weight gradients (small c, long k), activations, one row, ragged sizes, several blocks in
// each direction.
const std::vector<GemmSize>& sizes() {
  static const std::vector<GemmSize> all{{128, 128, 4096}, {96, 64, 20000}, {16, 16, 30000},
                                         {8, 500, 5000},   {300, 40, 9000}, {512, 384, 128},
                                         {260, 1600, 64},  {1, 3000, 500},  {1, 64, 10000},
                                         {37, 1001, 301},  {700, 770, 97},  {2100, 100, 64}};
  return all;
}

template <typename TIn, typename TOut>
void check_threads(GemmCase<TIn, TOut> g) {
  for (int layout = 0; layout < 4; ++layout) {
    g.a_transposed = layout & 1, g.b_transposed = layout & 2;
    CAPTURE(g.m, g.n, g.k, layout);
    CHECK(same_bits_for_any_threads(cpu(), [&](const Exec& exec) { return run_gemm(exec, g).c; }));
  }
}

TEST_CASE("gemm has the same bits for any number of threads", "[gemm]") {
  for (const auto& [m, n, k] : sizes()) {
    check_threads(random_case<float, float>(m, n, k));
    check_threads(random_case<bf16, bf16>(m, n, k));
    auto g = random_case<bf16, float>(m, n, k);  // operands are transposed as for a weight gradient
    g.accumulate = true;
    g.c = randn<float>(m * n, 3);
    check_threads(g);
  }
  check_threads(random_case<f16, f16>(200, 500, 2000));
}

TEST_CASE("gemm's epilogues have the same bits for any number of threads", "[gemm]") {
  auto g = random_case<bf16, bf16>(900, 800, 100);
  g.aux = randn<bf16>(g.m * g.n, 3);
  g.epilogue = Epilogue::kDGeluTanh;
  g.bias_grad = randn<float>(g.n, 4);
  g.accumulate_bias_grad = true;
  CHECK(same_bits_for_any_threads(cpu(),
                                  [&](const Exec& exec) { return run_gemm(exec, g).bias_grad; }));
  check_threads(g);
  g.bias_grad.clear();
  g.epilogue = Epilogue::kGeluErf;
  g.bias = randn<bf16>(g.n, 5);
  check_threads(g);
}

TEST_CASE("gemm depends on exec.threads alone, not on OpenMP's number of threads", "[gemm]") {
  const int before = omp_get_max_threads();
  for (const auto& [m, n, k] : sizes()) {
    const auto g = random_case<float, float>(m, n, k);
    omp_set_num_threads(1);
    const auto want = run_gemm(with_threads(cpu(), 1), g).c;
    omp_set_num_threads(5);
    CAPTURE(m, n, k);
    CHECK(same_bits(run_gemm(with_threads(cpu(), 1), g).c, want));
    CHECK(same_bits(run_gemm(with_threads(cpu(), 3), g).c, want));
    CHECK(omp_get_max_threads() == 5);
  }
  omp_set_num_threads(before);
}

TEST_CASE("one product may run in several threads at once", "[gemm]") {
  using kernels::cpu::OnednnMatmul;
  const auto g = random_case<float, float>(300, 200, 100);
  const auto matmul =
      OnednnMatmul::get({.m = 300, .n = 200, .k = 100, .lda = 100, .ldb = 200, .ldc = 200});
  std::vector<std::vector<float>> results(4, std::vector<float>(300 * 200));
  std::vector<std::thread> threads;
  for (auto& c : results) {
    threads.emplace_back([&matmul, &g, &c] {
      const DeviceBytes scratch(cpu(), matmul->scratch_bytes());
      matmul->run(g.a.data(), g.b.data(), c.data(), scratch.data());
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& c : results) CHECK(same_bits(c, results[0]));
  // A sum of 100 products, each of magnitude about 1, has 101 roundings.
  CHECK(max_error(run_gemm(cpu(), g).c, to_f64(results[0])) < 200 * 0x1p-24 * 100);
}

TEST_CASE("more kinds of products than the cache holds still work", "[gemm]") {
  using kernels::cpu::OnednnMatmul;
  const std::vector<float> a{1, 2, 3}, b{4, 5, 6};
  const auto held = OnednnMatmul::get({.m = 1, .n = 1, .k = 3, .lda = 3, .ldb = 1, .ldc = 1});
  alignas(64) char scratch[4096];
  for (int64_t lda = 3; lda < 700; ++lda) {
    const auto matmul = OnednnMatmul::get({.m = 1, .n = 1, .k = 3, .lda = lda, .ldb = 1, .ldc = 1});
    REQUIRE(matmul->scratch_bytes() <= sizeof(scratch));
    float c = 0;
    matmul->run(a.data(), b.data(), &c, scratch);
    REQUIRE(c == 32);
  }
  float c = 0;
  held->run(a.data(), b.data(), &c, scratch);
  CHECK(c == 32);
}

TEST_CASE("gemm's blocks cover c once, whatever its size", "[gemm]") {
  using namespace kernels::cpu;
  const auto kind = GENERATE(GemmKind::kDenseBlock, GemmKind::kDenseRows, GemmKind::kStrided,
                             GemmKind::kWide, GemmKind::kInterleave);
  const bool avx512 = GENERATE(true, false);
  for (const auto& [m, n] : {std::pair{1, 1},
                             {1, 50304},
                             {33, 47},
                             {1000, 1000},
                             {2048, 128},
                             {5000, 97},
                             {97, 5000},
                             {12345, 1600}}) {
    for (const int64_t k : {0, 1, 128, 100000}) {
      const GemmBlocks blocks = gemm_blocks(m, n, k, kind, avx512);
      CAPTURE(m, n, k, blocks.rows, blocks.cols);
      int64_t area = 0;
      std::vector<bool> seen(size_t(blocks.count()));
      for (int64_t index = 0; index < blocks.count(); ++index) {
        const auto block = blocks.block(index);
        REQUIRE(block.rows > 0);
        REQUIRE(block.cols > 0);
        REQUIRE(block.row % blocks.rows == 0);
        REQUIRE(block.col % blocks.cols == 0);
        REQUIRE(block.row + block.rows <= m);
        REQUIRE(block.col + block.cols <= n);
        const size_t cell =
            size_t(block.row / blocks.rows * blocks.col_blocks + block.col / blocks.cols);
        REQUIRE(!seen[cell]);
        seen[cell] = true;
        area += block.rows * block.cols;
      }
      CHECK(area == int64_t{m} * n);
    }
  }
}

}  // namespace
}  // namespace shale::test
