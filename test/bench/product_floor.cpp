#include "shale/bench/support/product_floor.h"

#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::bench {
namespace {

ProductCall call_of(const char* name, const float* a, const float* b, float* c, int64_t m,
                    int64_t n, int64_t k) {
  return {.name = name,
          .spec = MatmulSpec{.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n},
          .a = a,
          .b = b,
          .c = c};
}

}  // namespace

TEST_CASE("the floor runs the products in memory of its own", "[bench]") {
  std::vector<float> memory(4096, 7.f);
  float* const p = memory.data();
  // The second GEMM reads the first one's output and overwrites its input.
  ProductFloor floor({call_of("first", p, p + 100, p + 200, 8, 8, 8),
                      call_of("second", p + 200, p + 1000, p, 8, 8, 8)});
  CHECK(floor.flops() == 2 * 2 * 8 * 8 * 8);
  CHECK(floor.run() > 0);
  CHECK(floor.run() > 0);
  CHECK(floor.totals().at("first").calls == 2);
  CHECK(floor.totals().at("second").cost.flops == 2 * 2 * 8 * 8 * 8);
  CHECK(memory == std::vector<float>(4096, 7.f));
  floor.reset();
  CHECK(floor.totals().empty());
}

TEST_CASE("operands that overlap in the step overlap in the floor", "[bench]") {
  std::vector<float> memory(1 << 20);
  float* const p = memory.data();
  constexpr int64_t kPage = 4096;
  // The operands of `one` are in one region of 16 KiB, those of `apart` in two distant ones.
  const ProductFloor one({call_of("x", p, p + 32 * 32, p + 64 * 32, 32, 32, 32)});
  CHECK(one.memory_bytes() >= 3 * kPage);
  CHECK(one.memory_bytes() < 5 * kPage);
  const ProductFloor apart({call_of("x", p, p + (1 << 19), p + 32, 32, 32, 32)});
  CHECK(apart.memory_bytes() < 5 * kPage);  // memory between distant regions does not count
}

TEST_CASE("a product that oneDNN lacks is an error that names it", "[bench]") {
  std::vector<double> memory(300);
  const MatmulSpec spec{
      .m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4, .in = DType::kF64, .out = DType::kF64};
  ProductCall call{.name = "f64", .spec = spec};
  call.a = call.b = call.c = memory.data();
  const auto message = test::message_of<UnavailableError>([&] { ProductFloor({call}); });
  CHECK(test::contains(message, "fp64"));
}

}  // namespace shale::bench
