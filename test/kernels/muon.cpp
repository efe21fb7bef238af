// Tests the elementwise kernels around Muon's matmuls: compares them with f64.
#include "shale/kernels/muon.h"

#include <cmath>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

const std::vector<int64_t> kSizes = {0, 1, 15, 17, 1000, 40000};

StepState step_state() {
  return {.lr = 2e-3f, .clip_factor = 0.7f};
}

template <typename To>
std::vector<To> convert(const std::vector<float>& values) {
  std::vector<To> out;
  for (const float value : values) out.push_back(To(value));
  return out;
}

}  // namespace

TEST_CASE("muon_momentum agrees with f64, and rounds the update once", "[kernels][optim]") {
  const int64_t n = GENERATE(from_range(kSizes));
  const bool nesterov = GENERATE(true, false);
  const auto g = test::randn<float>(n, 1), m = test::randn<float>(n, 2);
  for (const Exec& exec : test::devices_with({&kernels::muon_momentum})) {
    CAPTURE(n, nesterov);
    const test::DeviceStep step(exec, step_state());
    const DeviceArray<float> grad(exec, g), dm(exec, m);
    const DeviceArray<bf16> update(exec, n);
    kernels::muon_momentum(step.exec(), {.grad = grad.view(),
                                         .m = dm.view(),
                                         .update = update.view(),
                                         .beta = 0.75f,
                                         .nesterov = nesterov});
    const auto got_m = dm.download();
    const auto got = update.download();
    for (size_t i = 0; i < g.size(); ++i) {
      const double share = 0.25 * double{0.7f} * double{g[i]};
      const double mean = 0.75 * double{m[i]} + share;
      const double wanted = nesterov ? share + 0.75 * mean : mean;
      // m has three roundings of numbers below 4. The update is also rounded to bf16, which has 8
      // bits.
      REQUIRE(std::abs(double{got_m[i]} - mean) <= 3 * 0x1p-23);
      REQUIRE(std::abs(double{to_f32(got[i])} - wanted) <= 0x1p-8 * std::abs(wanted) + 0x1p-20);
    }
  }
}

TEST_CASE("muon decays and steps a master, and its parameter follows", "[kernels][optim]") {
  const int64_t n = GENERATE(from_range(kSizes));
  const auto w = test::randn<float>(n, 1);
  const auto u = convert<bf16>(test::randn<float>(n, 2));
  for (const Exec& exec : test::devices_with({&kernels::muon})) {
    CAPTURE(n);
    const test::DeviceStep step(exec, step_state());
    const DeviceArray<float> master(exec, w);
    const DeviceArray<bf16> update(exec, u), param(exec, n);
    kernels::muon(step.exec(), {.master = master.view(),
                                .update = update.view(),
                                .param = param.view(),
                                .lr_factor = 0.5f,
                                .scale = 3,
                                .weight_decay = 0.1f});
    const auto got = master.download();
    for (size_t i = 0; i < w.size(); ++i) {
      const double change = 3 * double{to_f32(u[i])} + double{0.1f} * double{w[i]};
      const double wanted = double{w[i]} - double{2e-3f} * 0.5 * change;
      REQUIRE(std::abs(double{got[i]} - wanted) <= 0x1p-21);  // error of two roundings below 8
    }
    CHECK(test::same_bits(param.download(), convert<bf16>(got)));
  }
}

TEST_CASE("muon writes nothing when gradients are not finite, and its update is zero",
          "[kernels][optim]") {
  StepState state = step_state();
  state.non_finite = 1;
  const std::vector<float> ones(300, 1.f);
  for (const Exec& exec : test::devices_with({&kernels::muon, &kernels::muon_momentum})) {
    const test::DeviceStep step(exec, state);
    const DeviceArray<float> w(exec, ones), g(exec, ones), m(exec, ones);
    const DeviceArray<bf16> update(exec, convert<bf16>(ones));
    kernels::muon_momentum(step.exec(), {.grad = g.view(), .m = m.view(), .update = update.view()});
    CHECK(m.download() == ones);
    CHECK(test::same_bits(update.download(), std::vector<bf16>(300, bf16(0.f))));
    kernels::muon(step.exec(), {.master = w.view(), .update = update.view(), .weight_decay = 1});
    CHECK(w.download() == ones);
  }
}

}  // namespace shale
