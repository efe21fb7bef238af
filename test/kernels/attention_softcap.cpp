// Tests attention with softcapped scores.
#include <algorithm>
#include <limits>

#include "shale/test/kernels/attention_check.h"

namespace shale::test {
namespace {

// Sets the softcap of a shape. Scores have a standard deviation of 1, so a softcap of 0.7 changes
// most of them and a softcap of 50 changes few.
AttentionShape capped(AttentionShape shape, double softcap, int64_t window = 0) {
  shape.softcap = softcap;
  shape.window = window;
  return shape;
}

}  // namespace

// The shapes cover both backward schemes, few queries as in generation, head groups and hidden
// keys.
TEMPLATE_TEST_CASE("attention with capped scores agrees with f64 on the CPU",
                   "[kernels][attention]", float, bf16, f16) {
  const double softcap = GENERATE(0.7, 3., 50.);
  check_on_cpu<TestType>(capped(shape_of(1, 150, 150, 2, 1, 24), softcap));
  check_on_cpu<TestType>(capped(shape_of(4, 70, 130, 4, 2, 20), softcap));
  check_on_cpu<TestType>(capped(shape_of(2, 3, 300, 4, 2, 20), softcap));
  check_on_cpu<TestType>(capped(shape_of(1, 90, 90, 1, 1, 16, /*causal=*/false), softcap));
  check_on_cpu<TestType>(capped(shape_of(1, 200, 200, 1, 1, 16), softcap, 30));
}

// Hopper has its own kernels for all 16-bit heads of this test.
TEMPLATE_TEST_CASE("attention with capped scores agrees with f64 on GPUs", "[kernels][attention]",
                   float, bf16, f16) {
  if constexpr (std::is_same_v<TestType, float>) {
    check_on_gpus<float>(capped(shape_of(1, 65, 70, 2, 1, 64), 0.7));
    check_on_gpus<float>(capped(shape_of(1, 33, 65, 1, 1, 80), 50));
    return;
  }
  // f16 runs the code of bf16, and the emulator is slow.
  if constexpr (std::is_same_v<TestType, f16>) {
    check_on_gpus<f16>(capped(shape_of(1, 70, 70, 1, 1, 64), 3));
    check_on_gpus<f16>(capped(shape_of(1, 70, 70, 1, 1, 256), 3));
    return;
  }
  check_on_gpus<TestType>(capped(shape_of(1, 70, 140, 2, 1, 64), 0.7));
  check_on_gpus<TestType>(capped(shape_of(1, 200, 200, 1, 1, 64), 3, 70));
  check_on_gpus<TestType>(capped(shape_of(1, 40, 70, 1, 1, 96, /*causal=*/false), 50));
  check_on_gpus<TestType>(capped(shape_of(1, 70, 140, 1, 1, 128), 0.7));
  check_on_gpus<TestType>(capped(shape_of(1, 70, 140, 2, 1, 192), 0.7));
  check_on_gpus<TestType>(capped(shape_of(1, 140, 140, 1, 1, 256), 3, 50));
}

TEST_CASE("capped scores stay below their limit, and what is beyond a sequence's end out of them",
          "[kernels][attention]") {
  const AttentionShape shape = capped(shape_of(2, 70, 140, 1, 1, 64), 2);
  const SequenceLengths lengths{{70, 20}, {140, 50}};
  // Inputs with a standard deviation of 8 give scores of several hundred.
  const AttentionInputs<bf16> in(shape, 42, 8);
  for (const Exec& exec : attention_variants()) {
    CAPTURE(describe(exec));
    const AttentionResults<bf16> got = run_attention(exec, in, lengths);
    for (int64_t i = 0; i < 70; ++i) {
      // The softcap of 2 limits the scores of all keys to [-2, 2], so the lse is within 2 of
      // log(keys).
      const double keys = double(i + 140 - 70 + 1), lse = double{got.lse[size_t(i)]};
      CHECK(std::abs(lse - std::log(keys)) <= 2 + 1e-5);
    }
    const AttentionInputs<bf16> alone = sequence_of(in, 1, 20, 50);
    const RefAttention want = alone.reference(exec.device);
    const AttentionResults<bf16> second = sequence_of(got, shape, 1);
    const auto starts_with = [](const std::vector<bf16>& values, const Bounded& head) {
      const auto count = static_cast<std::ptrdiff_t>(head.value.size());
      CHECK(error_over_bound(to_f64(std::vector<bf16>(values.begin(), values.begin() + count)),
                             head) <= 1);
      CHECK(
          std::all_of(values.begin() + count, values.end(), [](bf16 x) { return to_f32(x) == 0; }));
    };
    starts_with(second.out, want.out);
    starts_with(second.dq, want.dq);
    starts_with(second.dk, want.dk);
    starts_with(second.dv, want.dv);
  }
}

TEST_CASE("a softcap far above all scores changes hardly a bit", "[kernels][attention]") {
  const AttentionShape plain = shape_of(1, 100, 100, 1, 1, 64);
  const AttentionInputs<float> in(plain, 43), wide(capped(plain, 1e3), 43);
  for (const Exec& exec : reproducible_devices()) {
    CAPTURE(describe(exec));
    const auto want = run_attention(exec, in).all(), got = run_attention(exec, wide).all();
    // For a large softcap c, c tanh(s / c) = s - s^3 / (3 c^2) + ... Scores below 6 change by at
    // most 7e-5, and each result, a sum of a few values of order 1, changes in proportion.
    CHECK(max_error(got, to_f64(want)) <= 4 * 7e-5);
  }
}

TEST_CASE("softcaps that cannot be are errors", "[kernels][attention]") {
  const Exec exec = attention_devices().front();
  for (const double softcap : {-1., 1e-4, 1e4, std::numeric_limits<double>::quiet_NaN()}) {
    const AttentionInputs<float> in(capped(shape_of(1, 5, 7, 1, 1, 8), softcap), 44);
    CHECK(contains(message_of<ShapeError>([&] { run_attention(exec, in); }),
                   "expected 0, or 0.001 to 1000"));
  }
}

}  // namespace shale::test
