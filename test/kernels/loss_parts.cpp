// Cross-entropy with the vocabulary split over ranks.
#include <cmath>
#include <limits>

#include "shale/kernels/loss.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/ref_cross_entropy.h"

namespace shale {
namespace {

using test::DeviceArray;
using namespace test::cross_entropy;
// Splits the columns into `parts` equal parts and runs the kernels as ranks do.
template <typename T>
Run<T> run(const Exec& base, const Case<T>& c, int64_t parts, bool write_grad = true) {
  StepState state;
  state.grad_scale = kScale;
  const test::DeviceStep step(base, state);
  const int64_t rows = c.rows(), cols = c.cols / parts;
  const DeviceArray<int32_t> targets(base, c.targets);
  const DeviceArray<float> stats(base, parts * rows * 3);
  Run<T> got{.logits = c.logits, .losses = {}};
  std::vector<std::unique_ptr<DeviceArray<T>>> logits;
  for (int64_t k = 0; k < parts; ++k) {
    std::vector<T> part;
    for (int64_t r = 0; r < rows; ++r) {
      const auto begin = c.logits.begin() + r * c.cols + k * cols;
      part.insert(part.end(), begin, begin + cols);
    }
    logits.push_back(std::make_unique<DeviceArray<T>>(base, part));
    kernels::cross_entropy_stats(step.exec(),
                                 {.logits = logits.back()->view({rows, cols}),
                                  .targets = targets.view(),
                                  .stats = make_view(stats.data() + k * rows * 3, {rows, 3}),
                                  .first_column = k * cols,
                                  .vocab = c.vocab});
  }
  for (int64_t k = 0; k < parts; ++k) {
    const DeviceArray<float> losses(base, rows);
    kernels::cross_entropy_grad(step.exec(), {.logits = logits[size_t(k)]->view({rows, cols}),
                                              .targets = targets.view(),
                                              .stats = stats.view({parts, rows, 3}),
                                              .losses = losses.view(),
                                              .first_column = k * cols,
                                              .vocab = c.vocab,
                                              .write_grad = write_grad});
    CHECK((logits[size_t(k)]->margins_intact() && losses.margins_intact()));
    const std::vector<T> part = logits[size_t(k)]->download();
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(part.begin() + r * cols, cols, got.logits.begin() + r * c.cols + k * cols);
    }
    const std::vector<float> mine = losses.download();
    if (k > 0) CHECK(test::same_bits(mine, got.losses));  // all parts compute the same losses
    got.losses = mine;
  }
  return got;
}

}  // namespace

TEMPLATE_TEST_CASE("cross_entropy of parts agrees with f64 on every device", "[kernels][loss]",
                   float, bf16, f16) {
  // Columns: rows, logits per row, vocabulary. Cases: empty, one row, ragged, exact, a part that is
  // all padding, several packs.
  const auto [rows, cols, vocab] = GENERATE(table<int64_t, int64_t, int64_t>(
      {{0, 8, 8}, {1, 4, 4}, {3, 44, 41}, {4, 128, 128}, {5, 512, 257}, {2, 6144, 6100}}));
  const int64_t parts = GENERATE(1, 2, 4);
  if (cols % parts != 0) return;
  const auto c = make_case<TestType>(rows, cols, vocab);
  const auto exact = reference(c, test::Exact(), test::Exact());
  const auto rounded = reference(c, test::RoundTo<float>(), test::RoundTo<TestType>());
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy_stats})) {
    CAPTURE(rows, cols, vocab, parts);
    const auto got = run(exec, c, parts);
    // The loss may differ by 8 ulps: 4 as without parts, and for merging parts 2 for exp and 2 for
    // its product.
    CHECK(test::error_ratio(got.losses, exact.losses, rounded.losses, 8) <= 1);
    CHECK(test::error_ratio(got.logits, exact.grads, rounded.grads, 8) <= 1);
    const auto untouched = run(exec, c, parts, /*write_grad=*/false);
    CHECK(test::same_bits(untouched.logits, c.logits));
    CHECK(test::same_bits(untouched.losses, got.losses));
  }
}

TEST_CASE("targets on the edges of parts, and ignored ones", "[kernels][loss]") {
  auto c = make_case<float>(6, 32, 29, 80);
  c.targets = {0, 7, 8, 15, kernels::kIgnoreTarget, 28};
  c.logits[29] = std::numeric_limits<float>::quiet_NaN();  // padding, which must not be read
  const auto exact = reference(c, test::Exact(), test::Exact());
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy_stats})) {
    const auto got = run(exec, c, 4);
    CHECK(got.losses[4] == 0);
    for (size_t r = 0; r < 6; ++r) {
      CHECK(got.losses[r] == Approx(exact.losses[r]).epsilon(1e-5));
      for (size_t j = 0; j < 32; ++j) {
        CHECK(std::abs(double{got.logits[32 * r + j]} - exact.grads[32 * r + j]) < 1e-6);
      }
    }
  }
}

TEST_CASE("a NaN logit is not lost, whichever part has it", "[kernels][loss]") {
  const size_t at = GENERATE(0u, 9u, 31u);
  auto c = make_case<float>(2, 32, 32);
  c.targets[0] = 5;
  c.logits[at] = std::numeric_limits<float>::quiet_NaN();
  for (const Exec& exec : test::devices_with({&kernels::cross_entropy_stats})) {
    const auto got = run(exec, c, 4);
    CHECK(std::isnan(got.losses[0]));
    CHECK(std::isnan(got.logits[20]));
    CHECK(std::isfinite(got.losses[1]));
  }
}

TEST_CASE("cross_entropy of parts refuses what is not one", "[kernels][loss]") {
  const auto c = make_case<float>(2, 8, 8);
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> logits(exec, c.logits), stats(exec, 33 * 2 * 3);
  const DeviceArray<int32_t> targets(exec, c.targets), outside(exec, std::vector<int32_t>{8, 0});
  kernels::CrossEntropyStatsArgs args{.logits = logits.view({2, 8}),
                                      .targets = outside.view(),
                                      .stats = make_view(stats.data(), {2, 3}),
                                      .vocab = 8};
  CHECK_THROWS_AS(kernels::cross_entropy_stats(exec, args), DataError);
  args.targets = targets.view();
  args.vocab = 0;
  CHECK_THROWS_AS(kernels::cross_entropy_stats(exec, args), ShapeError);
  CHECK_THROWS_AS(kernels::cross_entropy_grad(exec, {.logits = logits.view({2, 8}),
                                                     .targets = targets.view(),
                                                     .stats = stats.view({33, 2, 3}),
                                                     .vocab = 8,
                                                     .write_grad = false}),
                  ShapeError);
}

}  // namespace shale
