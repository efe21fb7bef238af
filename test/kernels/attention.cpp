#include "shale/kernels/attention.h"

#include <cmath>
#include <tuple>

#include "shale/test/kernels/attention_check.h"
#include "shale/test/support/all_limits.h"
#include "shale/test/support/catch.h"

namespace shale {
namespace {

using test::AttentionInputs;
using test::AttentionShape;
using test::RefAttention;
using test::shape_of;

// Columns: B, Tq, Tk, H, Hkv, D. Shapes are small, because emulated GPUs are slow. Tiles have 32 to
// 128 queries or keys. GPU kernels pad heads to 64, 96, 128 or 256. If rows are not multiples of 16
// bytes, the kernels pack them first.
const auto kGpuShapes = {shape_of(0, 3, 3, 2, 2, 8),     shape_of(2, 0, 0, 2, 1, 8),
                         shape_of(1, 0, 5, 2, 2, 8),     shape_of(1, 5, 0, 2, 2, 8),
                         shape_of(1, 5, 5, 0, 2, 8),     shape_of(1, 1, 1, 1, 1, 1),
                         shape_of(2, 7, 7, 3, 3, 20),    shape_of(1, 128, 128, 1, 1, 64),
                         shape_of(1, 65, 65, 4, 2, 80),  shape_of(1, 150, 150, 2, 1, 96),
                         shape_of(2, 7, 140, 2, 2, 128), shape_of(1, 150, 300, 1, 1, 64),
                         shape_of(1, 70, 40, 2, 1, 200)};
const auto kGpuShapesF32 = {shape_of(0, 3, 3, 2, 2, 8),    shape_of(2, 0, 0, 2, 1, 8),
                            shape_of(1, 5, 0, 2, 2, 8),    shape_of(1, 1, 1, 1, 1, 1),
                            shape_of(2, 7, 7, 3, 3, 20),   shape_of(1, 65, 70, 2, 1, 64),
                            shape_of(1, 33, 65, 1, 1, 80), shape_of(1, 64, 32, 1, 1, 200)};

// Computes the sum of dout * out, whose derivatives the test approximates by finite differences.
double objective(const AttentionShape& shape, const std::vector<double>& q,
                 const std::vector<double>& k, const std::vector<double>& v,
                 const std::vector<double>& dout) {
  const RefAttention r = test::ref_attention(shape, q, k, v, dout);
  double sum = 0;
  for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * r.out.value[i];
  return sum;
}

double central_difference(const AttentionShape& shape, AttentionInputs<double> in,
                          std::vector<double> AttentionInputs<double>::*array, size_t at) {
  constexpr double kStep = 1e-5;
  std::vector<double>& values = in.*array;
  const double x = values[at];
  values[at] = x + kStep;
  const double above = objective(shape, in.q, in.k, in.v, in.dout);
  values[at] = x - kStep;
  const double below = objective(shape, in.q, in.k, in.v, in.dout);
  return (above - below) / (2 * kStep);
}

}  // namespace

TEST_CASE("the f64 reference of attention agrees with finite differences", "[kernels][attention]") {
  const bool causal = GENERATE(false, true);
  const auto [queries, keys] = GENERATE(std::tuple{5, 5}, std::tuple{3, 6}, std::tuple{6, 4});
  const AttentionShape shape = shape_of(2, queries, keys, 4, 2, 3, causal);
  const AttentionInputs<double> in(shape, 1);
  const RefAttention r = test::ref_attention(shape, in.q, in.k, in.v, in.dout);
  // The truncation error is of order step^2 = 1e-10 and the cancellation error 1e-16 / step =
  // 1e-11, both times values of order 10.
  constexpr double kTolerance = 1e-8;
  for (size_t i = 0; i < in.q.size(); ++i) {
    const double want = central_difference(shape, in, &AttentionInputs<double>::q, i);
    REQUIRE(std::abs(r.dq.value[i] - want) <= kTolerance);
  }
  for (size_t i = 0; i < in.k.size(); ++i) {
    const double dk = central_difference(shape, in, &AttentionInputs<double>::k, i);
    REQUIRE(std::abs(r.dk.value[i] - dk) <= kTolerance);
    const double dv = central_difference(shape, in, &AttentionInputs<double>::v, i);
    REQUIRE(std::abs(r.dv.value[i] - dv) <= kTolerance);
  }
}

TEMPLATE_TEST_CASE("attention agrees with f64 on GPUs", "[kernels][attention]", float, bf16, f16) {
  constexpr bool kF32 = std::is_same_v<TestType, float>;  // backward has a single variant in f32
  for (AttentionShape shape : kF32 ? kGpuShapesF32 : kGpuShapes) {
    for (const bool causal : {false, true}) {
      shape.causal = causal;
      const AttentionInputs<TestType> in(shape, 1);
      for (const Exec& exec : kF32 ? test::attention_devices() : test::attention_variants()) {
        if (!test::is_gpu(exec)) continue;
        CAPTURE(test::describe(exec), describe(shape));
        test::check_against_f64(exec, in);
      }
    }
  }
}

TEMPLATE_TEST_CASE("attention with heads of 128 agrees with f64 for every tile of forward",
                   "[kernels][attention]", bf16, f16) {
  using kernels::AttentionTile;
  for (AttentionShape shape : {shape_of(1, 70, 140, 2, 1, 128), shape_of(1, 130, 66, 1, 1, 128)}) {
    for (const bool causal : {false, true}) {
      shape.causal = causal;
      const AttentionInputs<TestType> in(shape, 1);
      for (const Exec& exec : test::attention_devices()) {
        if (!test::is_gpu(exec)) continue;
        for (const auto tile : {AttentionTile::k64x64, AttentionTile::k128x32}) {
          CAPTURE(test::describe(exec), describe(shape), int(tile));
          test::check_against_f64(exec, in, tile);
        }
      }
    }
  }
}

// These head sizes have default tiles that need more shared memory than a block can have. On GPUs
// with 99 KiB per block (compute capability 12.0) these are sizes from 96 in 16 bits, and 256 in
// f32. On GPUs with 64 KiB (7.5) they are all sizes; such GPUs have no bf16 and refuse backward of
// heads of 256.
TEMPLATE_TEST_CASE("attention agrees with f64 on GPUs with little shared memory",
                   "[kernels][attention]", float, bf16, f16) {
  constexpr bool kF32 = std::is_same_v<TestType, float>;
  constexpr bool kBF16 = std::is_same_v<TestType, bf16>;
  for (const int64_t head_size : {64, 96, 128, 256}) {
    const AttentionInputs<TestType> in(shape_of(1, 40, 75, 2, 1, head_size), 1);
    for (Exec exec : test::devices_of_all_limits({&kernels::attention_bwd})) {
      const bool is_turing = exec.device.arch == 75;
      if (is_turing ? kBF16 || head_size == 256 : exec.device.arch != 120) continue;
      if (!is_turing && (head_size == 64 || (kF32 && head_size != 256))) continue;
      for (const bool deterministic : {false, true}) {
        exec.deterministic = deterministic;
        CAPTURE(test::describe(exec), head_size);
        test::check_against_f64(exec, in);
      }
    }
  }
}

TEST_CASE("heads that no tile is small enough for are refused", "[kernels][attention]") {
  const AttentionInputs<float> in(shape_of(1, 40, 75, 2, 1, 256), 1);
  for (Exec exec : test::devices_of_all_limits({&kernels::attention_bwd})) {
    if (exec.device.arch != 75) continue;
    CHECK(test::contains(
        test::message_of<UnavailableError>([&] { test::check_against_f64(exec, in); }),
        "has 64 KiB of shared memory for a block, too little for the gradients of heads"));
  }
}

TEST_CASE("attention names a tile that has no kernel", "[kernels][attention]") {
  const AttentionInputs<bf16> in(shape_of(1, 5, 5, 1, 1, 64), 1);
  for (const Exec& exec : test::attention_devices()) {
    if (!test::is_gpu(exec)) continue;
    CHECK(test::message_of<UnavailableError>([&] {
            test::run_attention(exec, in, {}, kernels::AttentionTile::k64x64);
          }) == "attention_fwd: no kernel for heads of 64 with tiles of 64x64");
  }
}

}  // namespace shale
