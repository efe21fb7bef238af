#include <cmath>

#include <hwy/targets.h>

#include "shale/test/kernels/attention_check.h"

namespace shale {
namespace {

using test::AttentionInputs;
using test::AttentionShape;
using test::check_against_f64;
using test::shape_of;

// Columns: B, Tq, Tk, H, Hkv, D. If B * Hkv is 8 or more, the CPU's backward uses another
// algorithm. With up to 4 queries, its forward uses another kernel.
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

}  // namespace

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

TEST_CASE("attention on the CPU agrees with f64 on every instruction set", "[kernels][attention]") {
  const Exec& exec = test::devices().front();
  for (const int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    // This machine lacks the instruction set.
    if ((hwy::SupportedTargets() & target) == 0) continue;
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
