#include "shale/kernels/loss.h"

#include <cmath>
#include <limits>

#include "shale/test/support/all_limits.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/ref_cross_entropy.h"

namespace shale {
namespace {

using test::DeviceArray;
using namespace test::cross_entropy;
template <typename T>
Run<T> run(const Exec& base, const Case<T>& c, bool write_grad = true) {
  StepState state;
  state.grad_scale = kScale;
  const test::DeviceStep step(base, state);
  const auto rows = int64_t(c.targets.size());
  const DeviceArray<T> logits(base, c.logits);
  const DeviceArray<int32_t> targets(base, c.targets);
  const DeviceArray<float> losses(base, rows);
  kernels::cross_entropy(step.exec(), {.logits = logits.view({rows, c.cols}),
                                       .targets = targets.view(),
                                       .losses = losses.view(),
                                       .vocab = c.vocab,
                                       .write_grad = write_grad,
                                       .softcap = c.softcap});
  CHECK((logits.margins_intact() && losses.margins_intact()));
  return {logits.download(), losses.download()};
}

}  // namespace

TEMPLATE_TEST_CASE("cross_entropy and its gradient agree with f64 on every device",
                   "[kernels][loss]", float, bf16, f16) {
  // Columns: rows, logits per row, vocabulary. Cases: empty, one row, ragged, exact, padded,
  // several groups, two rows that fill 48 KiB in f32 and in 16 bits, vocabularies of real models,
  // and rows that exceed a block's storage. On some GPUs that storage is shared memory, and kernels
  // have few or many registers.
  const auto [rows, cols, vocab] =
      GENERATE(table<int64_t, int64_t, int64_t>({{0, 8, 8},
                                                 {1, 1, 1},
                                                 {3, 31, 31},
                                                 {4, 128, 128},
                                                 {5, 300, 257},
                                                 {3, 1024, 1000},
                                                 {2, 6144, 6100},
                                                 {2, 12288, 12288},
                                                 {2, 50304, 50257},
                                                 {3, 128256, 128000},
                                                 {2, 151936, 151936}}));
  const auto c = make_case<TestType>(rows, cols, vocab);
  const auto exact = reference(c, test::Exact(), test::Exact());
  const auto rounded = reference(c, test::RoundTo<float>(), test::RoundTo<TestType>());
  for (const Exec& exec : test::devices_of_all_limits({&kernels::cross_entropy})) {
    CAPTURE(rows, cols, vocab);
    const auto got = run(exec, c);
    // The loss may differ by 4 ulps: two for exp, one for each side of the final difference.
    CHECK(test::error_ratio(got.losses, exact.losses, rounded.losses, 4) <= 1);
    CHECK(test::error_ratio(got.logits, exact.grads, rounded.grads, 4) <= 1);
    const auto untouched = run(exec, c, /*write_grad=*/false);
    CHECK(test::same_bits(untouched.logits, c.logits));
    CHECK(test::same_bits(untouched.losses, got.losses));
  }
}

TEMPLATE_TEST_CASE("capped logits and their gradient agree with f64 on every device",
                   "[kernels][loss]", float, bf16, f16) {
  // Rows that are padded, fit shared memory once or twice, or are not aligned. A softcap of 2
  // changes most logits.
  const auto [rows, cols, vocab] =
      GENERATE(table<int64_t, int64_t, int64_t>({{3, 31, 31}, {5, 304, 257}, {2, 50304, 50257}}));
  auto c = make_case<TestType>(rows, cols, vocab);
  for (const float softcap : {2.f, 30.f}) {
    c.softcap = softcap;
    const auto exact = reference(c, test::Exact(), test::Exact());
    const auto rounded = reference(c, test::RoundTo<float>(), test::RoundTo<TestType>());
    for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
      CAPTURE(to_string(exec.device), rows, cols, vocab, softcap);
      const auto got = run(exec, c);
      // The loss may differ by 8 ulps: 4 as without a softcap, and 2 for each of two tanh.
      CHECK(test::error_ratio(got.losses, exact.losses, rounded.losses, 8) <= 1);
      CHECK(test::error_ratio(got.logits, exact.grads, rounded.grads, 8) <= 1);
      const auto untouched = run(exec, c, /*write_grad=*/false);
      CHECK(test::same_bits(untouched.logits, c.logits));
      CHECK(test::same_bits(untouched.losses, got.losses));
    }
  }
}

TEST_CASE("a softcap of logits that cannot be is an error", "[kernels][loss]") {
  auto c = make_case<float>(2, 8, 8);
  for (const float softcap : {-1.f, 1e-4f, 1e4f}) {
    c.softcap = softcap;
    CHECK(test::contains(test::message_of<ShapeError>([&] { run(test::devices().front(), c); }),
                         "expected 0, or 0.001 to 1000"));
  }
}

TEST_CASE("each row of the cross_entropy gradient sums to zero", "[kernels][loss]") {
  const auto c = make_case<float>(3, 50304, 50257);
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    const auto got = run(exec, c);
    for (int64_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (int64_t j = 0; j < c.cols; ++j) sum += double{got.logits[size_t(r * c.cols + j)]};
      CHECK(std::abs(sum) < 1e-6);  // the sum of 50257 numbers whose magnitudes add up to 1/8
    }
  }
}

TEST_CASE("ignored rows and padding columns get zeros", "[kernels][loss]") {
  auto c = make_case<float>(3, 40, 33);
  c.targets[1] = kernels::kIgnoreTarget;
  for (int64_t j = 33; j < 40; ++j) c.logits[size_t(j)] = 1e30f;  // padding, which must not be read
  c.logits[39] = std::numeric_limits<float>::quiet_NaN();
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    const auto got = run(exec, c);
    CHECK(got.losses[1] == 0);
    for (size_t j = 0; j < 40; ++j) {
      CHECK(got.logits[40 + j] == 0);
      if (j >= 33) CHECK(got.logits[j] == 0);
    }
    CHECK(std::isfinite(got.losses[0]));
    CHECK(std::isfinite(got.logits[0]));
  }
}

TEST_CASE("cross_entropy survives logits of any size", "[kernels][loss]") {
  Case<float> c = {.logits = {3e38f, -3e38f, -INFINITY, -1e4f, -1e4f, -1e4f},
                   .targets = {0, 1},
                   .cols = 3,
                   .vocab = 3};
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    const auto got = run(exec, c);
    CHECK(got.losses[0] == 0);
    CHECK(got.losses[1] == Approx(std::log(3.0)));
    CHECK(got.logits[1] == 0);
    CHECK(got.logits[4] == Approx(kScale * (1.0 / 3 - 1)));
  }
}

TEST_CASE("a NaN or +inf logit is not lost, wherever it stands", "[kernels][loss]") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), INFINITY);
  const size_t at = GENERATE(0u, 15u, 130u, 256u);
  auto c = make_case<float>(2, 257, 257);
  c.targets[0] = 5;
  c.logits[at] = bad;
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    const auto got = run(exec, c);
    CHECK(std::isnan(got.losses[0]));
    CHECK(std::isnan(got.logits[7]));
    CHECK(std::isfinite(got.losses[1]));
  }
}

TEST_CASE("the cross_entropy gradient agrees with finite differences", "[kernels][loss]") {
  const auto c = make_case<float>(2, 9, 7, 1);
  std::vector<double> want;
  for (size_t i = 0; i < c.logits.size(); ++i) {
    Case<double> moved = {
        .logits = test::to_f64(c.logits), .targets = c.targets, .cols = 9, .vocab = 7};
    const double h = 1e-5;
    const auto loss = [&](double step) {
      auto copy = moved;
      copy.logits[i] += step;
      const auto out = reference(copy, test::Exact(), test::Exact());
      return (out.losses[0] + out.losses[1]) * double{kScale};
    };
    want.push_back((loss(h) - loss(-h)) / (2 * h));
  }
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    CHECK(test::max_error(run(exec, c).logits, want) < 1e-7);
  }
}

TEST_CASE("cross_entropy has the same bits for any number of threads", "[kernels][loss]") {
  const auto c = make_case<bf16>(37, 1000, 999);
  const Exec& exec = test::devices()[0];
  CHECK(test::same_bits_for_any_threads(exec, [&](const Exec& e) { return run(e, c).logits; }));
  CHECK(test::same_bits_for_any_threads(exec, [&](const Exec& e) { return run(e, c).losses; }));
}

TEST_CASE("cross_entropy takes rows with a stride", "[kernels][loss]") {
  const auto c = make_case<float>(4, 30, 30);
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    const auto want = run(exec, c, false).losses;
    std::vector<float> wide(4 * 50, -7.f);
    for (size_t i = 0; i < 120; ++i) wide[i / 30 * 50 + i % 30] = c.logits[i];
    const DeviceArray<float> logits(exec, wide), losses(exec, 4);
    const DeviceArray<int32_t> targets(exec, c.targets);
    kernels::cross_entropy(exec, {.logits = logits.view({4, 30}, {50, 1}),
                                  .targets = targets.view(),
                                  .losses = losses.view(),
                                  .vocab = 30,
                                  .write_grad = false});
    CHECK(test::same_bits(losses.download(), want));
  }
}

TEST_CASE("where targets cannot be looked at, one out of range makes its loss NaN",
          "[kernels][loss]") {
  auto c = make_case<float>(3, 40, 33);
  c.targets[1] = 33;
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy})) {
    if (exec.device.type == DeviceType::kCpu) continue;
    const auto got = run(exec, c);
    CHECK(std::isfinite(got.losses[0]));
    CHECK(std::isnan(got.losses[1]));
    CHECK(std::isnan(got.logits[40]));
    CHECK(std::isfinite(got.losses[2]));
  }
}

TEST_CASE("a target out of range is named with its row", "[kernels][loss]") {
  for (const int32_t wrong : {7, 1000000, -2}) {
    auto c = make_case<float>(3, 8, 7);
    c.targets[2] = wrong;
    const std::string message = test::message_of<DataError>([&] { run(test::devices()[0], c); });
    CHECK(message ==
          cat("cross_entropy: the target of row 2 is ", wrong, ", expected 0 to 6 or -1"));
  }
  auto c = make_case<float>(3, 8, 8);
  c.vocab = 9;
  CHECK(test::contains(test::message_of<ShapeError>([&] { run(test::devices()[0], c); }),
                       "vocab is 9, expected 1 to logits' 8 columns"));
}

}  // namespace shale
