#include "shale/bench/support/peaks.h"

#include "shale/test/support/catch.h"

namespace shale::bench {
namespace {

// 100 FLOP/s, 10 bytes/s, 20 for reading only.
Peaks round_numbers() {
  Peaks peaks{.copy = 10, .triad = 8, .update = 9, .read = 20};
  peaks.gemm[DType::kF32] = 100;
  return peaks;
}

}  // namespace

TEST_CASE("work is bound by arithmetic or by memory, whichever takes longer", "[bench]") {
  const Peaks peaks = round_numbers();
  const kernels::Cost products{.flops = 1000, .read_bytes = 10, .written_bytes = 10};
  CHECK(peaks.compute_bound(products, DType::kF32));
  CHECK(peaks.bound_seconds(products, DType::kF32) == 10);
  const kernels::Cost copying{.read_bytes = 50, .written_bytes = 50};
  CHECK_FALSE(peaks.compute_bound(copying, DType::kF32));
  CHECK(peaks.bound_seconds(copying, DType::kF32) == 10);
}

TEST_CASE("what only reads is set against the speed of reading", "[bench]") {
  CHECK(round_numbers().bound_seconds({.read_bytes = 100}, DType::kF32) == 5);
}

TEST_CASE("without a peak for the dtype, memory is the bound", "[bench]") {
  const kernels::Cost products{.flops = 1000, .read_bytes = 10, .written_bytes = 10};
  CHECK_FALSE(round_numbers().compute_bound(products, DType::kBF16));
  CHECK(round_numbers().bound_seconds(products, DType::kBF16) == 2);
}

}  // namespace shale::bench
