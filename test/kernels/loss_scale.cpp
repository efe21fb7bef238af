#include "shale/kernels/loss_scale.h"

#include <string>
#include <string_view>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::LossScaleArgs;

struct Row {
  float value;
  uint32_t good_steps, tolerance, skipped;
  bool operator==(const Row&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Row& r) {
  return out << "{" << r.value << ", " << r.good_steps << ", " << r.tolerance << ", " << r.skipped
             << "}";
}

// Returns the state after each step; '.' is a finite gradient, 'x' an overflow.
std::vector<Row> schedule(const Exec& exec, const LossScaleArgs& args, float start,
                          std::string_view gradients) {
  StepState state;
  state.loss_scale = {.value = start, .good_steps = 0, .tolerance = args.hysteresis};
  std::vector<Row> rows;
  for (const char gradient : gradients) {
    state.non_finite = gradient == 'x' ? 1 : 0;
    const test::DeviceStep step(exec, state);
    kernels::update_loss_scale(step.exec(), args);
    state = step.download();
    const LossScale& s = state.loss_scale;
    rows.push_back({s.value, s.good_steps, s.tolerance, s.skipped_steps});
  }
  return rows;
}

// Outlier flags of a series of norms, and the content of the window at the end.
struct Window {
  std::string outliers;
  std::vector<float> norms;
  int64_t count = 0;
};

Window windowed(const Exec& exec, int64_t window, double sigmas, const std::vector<float>& norms) {
  const test::DeviceArray<float> ring(exec, std::vector<float>(size_t(window), 0.f));
  const test::DeviceArray<int64_t> count(exec, std::vector<int64_t>{0});
  Window result;
  for (const float norm : norms) {
    const bool overflow = !(norm < 1e30f);
    const test::DeviceStep step(exec, {.grad_norm = norm, .non_finite = overflow ? 1u : 0u});
    kernels::skip_outliers(step.exec(), {.norms = ring.view(),
                                         .count = make_view(count.view().as<int64_t>(), {}),
                                         .sigmas = sigmas});
    const uint32_t found = step.download().non_finite;
    result.outliers += found == kernels::kOutlierNorm ? 'o' : found != 0 ? 'x' : '.';
  }
  result.norms = ring.download();
  result.count = count.download().front();
  return result;
}

}  // namespace

TEST_CASE("a norm far above those before is an outlier, once half the window is known",
          "[kernels][loss_scale]") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Exec& exec : test::devices_with({&kernels::skip_outliers})) {
    // The norms 1, 2, 3 have mean 2 and standard deviation 1. With 3 sigmas, 5 is still no outlier,
    // but every larger norm is.
    const Window first = windowed(exec, 4, 3, {100, 1, inf, 2, 3, 1, 2, 4, 4.5f});
    CHECK(first.outliers == "..x......");
    CHECK(windowed(exec, 6, 3, {1, 2, 3, 5}).outliers == "....");
    CHECK(windowed(exec, 6, 3, {1, 2, 3, 5.01f}).outliers == "...o");
    CHECK(windowed(exec, 6, 3, {1, 2, 3, 0}).outliers == "....");
    // Outliers are detected once half of the window is filled. Of a window of 8, 3 norms are less
    // than half.
    CHECK(windowed(exec, 8, 3, {1, 2, 3, 100, 9}).outliers == ".....");
    // Each new norm replaces the oldest one, even if the new norm is an outlier. Infinities are not
    // stored.
    CHECK(first.count == 8);
    CHECK(first.norms == std::vector<float>{1, 2, 4, 4.5f});
    // If the norms stay at a higher level, they soon stop being outliers.
    CHECK(windowed(exec, 4, 3, {1, 1.1f, 1, 1.1f, 9, 9, 9, 9}).outliers == "....o...");
  }
}

TEST_CASE("an outlier leaves the loss scale as a finite gradient does", "[kernels][loss_scale]") {
  for (const Exec& exec : test::devices_with({&kernels::update_loss_scale})) {
    StepState state;
    state.loss_scale = {.value = 64, .good_steps = 1, .tolerance = 1};
    state.non_finite = kernels::kOutlierNorm;
    const test::DeviceStep step(exec, state);
    kernels::update_loss_scale(step.exec(), {.growth_interval = 2});
    CHECK(step.download().loss_scale.value == 128);
    CHECK(step.download().loss_scale.skipped_steps == 0);
    CHECK(step.download().non_finite == kernels::kOutlierNorm);
  }
}

// Rows written by hand from the documentation of torch.amp.GradScaler.
TEST_CASE("without hysteresis the scale follows PyTorch's GradScaler", "[kernels][loss_scale]") {
  for (const Exec& exec : test::devices_with({&kernels::update_loss_scale})) {
    const LossScaleArgs args{.growth_interval = 3};
    CHECK(schedule(exec, args, 64, "...x..x....") ==
          std::vector<Row>{{64, 1, 1, 0},
                           {64, 2, 1, 0},
                           {128, 0, 1, 0},  // grows after three finite steps
                           {64, 0, 0, 1},
                           {64, 1, 0, 1},
                           {64, 2, 0, 1},
                           {32, 0, 0, 2},  // counts finite steps from 0 again
                           {32, 1, 0, 2},
                           {32, 2, 0, 2},
                           {64, 0, 1, 2},
                           {64, 1, 1, 2}});
  }
}

// Rows written by hand from Megatron-LM's DynamicGradScaler: growth_tracker, hysteresis_tracker.
TEST_CASE("hysteresis tolerates overflows until the scale has grown again",
          "[kernels][loss_scale]") {
  for (const Exec& exec : test::devices_with({&kernels::update_loss_scale})) {
    const LossScaleArgs args{.growth_interval = 2, .hysteresis = 2};
    CHECK(schedule(exec, args, 64, "x.xx..x") ==
          std::vector<Row>{{64, 0, 1, 1},  // this overflow is tolerated
                           {64, 1, 1, 1},
                           {32, 0, 0, 2},  // this overflow exceeds the tolerance
                           {16, 0, 0, 3},
                           {16, 1, 0, 3},
                           // The scale has grown, so the next overflow is tolerated again.
                           {32, 0, 2, 3},
                           {32, 0, 1, 4}});
  }
}

TEST_CASE("the scale stays within its bounds, and says when it cannot fall",
          "[kernels][loss_scale]") {
  for (const Exec& exec : test::devices_with({&kernels::update_loss_scale})) {
    const LossScaleArgs args{.growth_interval = 1, .min_value = 1, .max_value = 8};
    CHECK(schedule(exec, args, 4, "...").back() == Row{8, 0, 1, 0});
    StepState state;
    state.loss_scale.value = 2;
    for (const uint32_t want : {1u, kernels::kOverflowAtMinScale}) {
      state.non_finite = 1;
      const test::DeviceStep step(exec, state);
      kernels::update_loss_scale(step.exec(), args);
      state = step.download();
      CHECK(state.loss_scale.value == 1);
      CHECK(state.non_finite == want);
    }
  }
}

}  // namespace shale
