#include "kernels/attention.h"

#include <cmath>
#include <tuple>

#include <hwy/targets.h>

#include "test/kernels/attention_run.h"
#include "test/support/catch.h"

namespace shale {
namespace {

using test::AttentionInputs;
using test::AttentionResults;
using test::AttentionShape;
using test::RefAttention;

AttentionShape shape_of(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
                        int64_t kv_heads, int64_t head_size, bool causal = true) {
  return {batch,    queries,   keys,   heads,
          kv_heads, head_size, causal, 1 / std::sqrt(static_cast<double>(head_size))};
}

// B, Tq, Tk, H, Hkv, D. From 8 pairs (batch, kv head) on, the CPU's backward is another scheme; up
// to 4 queries its forward is another kernel.
const auto kShapes = {shape_of(0, 3, 3, 2, 2, 8),     shape_of(2, 0, 0, 2, 1, 8),
                      shape_of(1, 0, 5, 2, 2, 8),     shape_of(1, 5, 0, 2, 2, 8),
                      shape_of(1, 5, 5, 0, 2, 8),     shape_of(1, 1, 1, 1, 1, 1),
                      shape_of(2, 7, 7, 3, 3, 20),    shape_of(1, 64, 64, 2, 2, 64),
                      shape_of(1, 65, 65, 4, 2, 80),  shape_of(1, 200, 200, 2, 1, 96),
                      shape_of(2, 7, 200, 2, 2, 128), shape_of(1, 200, 65, 2, 2, 32),
                      shape_of(1, 65, 200, 8, 2, 32), shape_of(2, 130, 130, 8, 4, 64),
                      shape_of(3, 64, 130, 9, 3, 8),  shape_of(1, 70, 70, 2, 1, 256),
                      shape_of(1, 129, 129, 1, 1, 1), shape_of(2, 140, 65, 8, 8, 20),
                      shape_of(2, 1, 200, 4, 2, 64),  shape_of(1, 4, 130, 8, 8, 20),
                      shape_of(1, 3, 1, 2, 1, 80),    shape_of(1, 2, 65, 16, 1, 1),
                      shape_of(1, 100, 1, 8, 8, 13)};

// Emulated GPUs are slow. Tiles have 32 to 128 queries or keys; heads are padded to 64, 96, 128 or
// 256, and packed first unless rows are multiples of 16 bytes.
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

// At most twice what rounding costs in f64, and half an ulp for results so few that none is near
// the middle of two numbers of T. Where the exact results vanish, they are sums of f32 that cancel:
// for the other bounds.
template <typename T>
bool as_good_as_rounding(const std::vector<T>& got, const test::Bounded& exact,
                         const test::Bounded& rounded) {
  if (test::max_abs(exact.value) < 1e-5) return true;
  return test::error_ratio(got, exact.value, rounded.value, 0.5) <= 1;
}

template <typename T>
void check_against_f64(const Exec& exec, const AttentionInputs<T>& in) {
  const RefAttention want = in.reference(exec.device);
  const AttentionResults<T> got = test::run_attention(exec, in);
  // The bounds are derived in ref_attention.cpp.
  CHECK(test::error_over_bound(test::to_f64(got.out), want.out) <= 1);
  CHECK(test::error_over_bound(test::to_f64(got.lse), want.lse) <= 1);
  CHECK(test::error_over_bound(test::to_f64(got.dq), want.dq) <= 1);
  CHECK(test::error_over_bound(test::to_f64(got.dk), want.dk) <= 1);
  CHECK(test::error_over_bound(test::to_f64(got.dv), want.dv) <= 1);
  if (sizeof(T) != 2) return;
  const RefAttention rounded = in.rounded();
  CHECK(as_good_as_rounding(got.out, want.out, rounded.out));
  CHECK(as_good_as_rounding(got.dq, want.dq, rounded.dq));
  CHECK(as_good_as_rounding(got.dk, want.dk, rounded.dk));
  CHECK(as_good_as_rounding(got.dv, want.dv, rounded.dv));
}

// Sum of dout * out: what finite differences differentiate.
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
  // Truncation is of order step^2 = 1e-10 and cancellation 1e-16 / step = 1e-11, both times values
  // of order 10.
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

TEMPLATE_TEST_CASE("attention agrees with f64 on the CPU", "[kernels][attention]", float, bf16,
                   f16) {
  for (AttentionShape shape : kShapes) {
    for (const bool causal : {false, true}) {
      shape.causal = causal;
      CAPTURE(describe(shape));
      check_against_f64(test::devices().front(), AttentionInputs<TestType>(shape, 1));
    }
  }
}

TEMPLATE_TEST_CASE("attention agrees with f64 on GPUs", "[kernels][attention]", float, bf16, f16) {
  constexpr bool kF32 = std::is_same_v<TestType, float>;  // has one variant of backward
  for (AttentionShape shape : kF32 ? kGpuShapesF32 : kGpuShapes) {
    for (const bool causal : {false, true}) {
      shape.causal = causal;
      const AttentionInputs<TestType> in(shape, 1);
      for (const Exec& exec : kF32 ? test::attention_devices() : test::attention_variants()) {
        if (!test::is_gpu(exec)) continue;
        CAPTURE(test::describe(exec), describe(shape));
        check_against_f64(exec, in);
      }
    }
  }
}

TEST_CASE("attention on the CPU agrees with f64 on every instruction set", "[kernels][attention]") {
  const Exec& exec = test::devices().front();
  for (const int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;  // not on this machine
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const AttentionShape& shape : kShapes) {
      CAPTURE(hwy::TargetName(target), describe(shape));
      check_against_f64(exec, AttentionInputs<float>(shape, 2));
      check_against_f64(exec, AttentionInputs<bf16>(shape, 3));
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace shale
