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

// The state after each step; '.' is a finite gradient, 'x' an overflow.
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

}  // namespace

// The rows are written by hand from the documentation of torch.amp.GradScaler.
TEST_CASE("without hysteresis the scale follows PyTorch's GradScaler", "[kernels][loss_scale]") {
  for (const Exec& exec : test::devices_with({&kernels::update_loss_scale})) {
    const LossScaleArgs args{.growth_interval = 3};
    CHECK(schedule(exec, args, 64, "...x..x....") ==
          std::vector<Row>{{64, 1, 1, 0},
                           {64, 2, 1, 0},
                           {128, 0, 1, 0},  // three in a row
                           {64, 0, 0, 1},
                           {64, 1, 0, 1},
                           {64, 2, 0, 1},
                           {32, 0, 0, 2},  // the count starts over
                           {32, 1, 0, 2},
                           {32, 2, 0, 2},
                           {64, 0, 1, 2},
                           {64, 1, 1, 2}});
  }
}

// By hand from Megatron-LM's DynamicGradScaler: growth_tracker, hysteresis_tracker.
TEST_CASE("hysteresis tolerates overflows until the scale has grown again",
          "[kernels][loss_scale]") {
  for (const Exec& exec : test::devices_with({&kernels::update_loss_scale})) {
    const LossScaleArgs args{.growth_interval = 2, .hysteresis = 2};
    CHECK(schedule(exec, args, 64, "x.xx..x") ==
          std::vector<Row>{{64, 0, 1, 1},  // tolerated
                           {64, 1, 1, 1},
                           {32, 0, 0, 2},  // the tolerance is used up
                           {16, 0, 0, 3},
                           {16, 1, 0, 3},
                           {32, 0, 2, 3},  // grown, and tolerant again
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
