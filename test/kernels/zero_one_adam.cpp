// The steps of 0/1 Adam, against f64.
#include "shale/kernels/zero_one_adam.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/kernels/optim.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::kWeightBlock;
using kernels::ZeroOneStep;
using test::DeviceArray;

// Empty, one, ragged, a block, one more, several and ragged.
const std::vector<int64_t> kSizes = {0, 1, 255, 256, 257, 1000, 40000};

struct Numbers {
  std::vector<float> master, grad, m, v, v_weight, anchor, sum, rates;
};

// A fifth of the elements have no v.
Numbers numbers_of(int64_t n) {
  const int64_t blocks = (n + kWeightBlock - 1) / kWeightBlock;
  Numbers x = {test::randn<float>(n, 1),
               test::randn<float>(n, 2),
               test::randn<float>(n, 3),
               test::randn<float>(n, 4),
               std::vector<float>(size_t(blocks), 0.4f),
               test::randn<float>(n, 5),
               test::randn<float>(n, 6),
               std::vector<float>(size_t(blocks), 0.03f)};
  for (int64_t i = 0; i < n; ++i) x.v[size_t(i)] = i % 5 == 2 ? 0 : x.v[size_t(i)] * x.v[size_t(i)];
  return x;
}

constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-3f, kDecay = 0.1f, kLrFactor = 0.5f;
constexpr float kGradFactor = 2;

StepState step_state(uint32_t non_finite = 0) {
  StepState state;
  state.lr = 0.01f;
  state.bias_correction1 = 0.6f;
  state.clip_factor = 0.7f;
  state.non_finite = non_finite;
  return state;
}

struct Kind {
  ZeroOneStep step;
  bool updates_v = false, clips = true;
};
const std::vector<Kind> kKinds = {{ZeroOneStep::kShared, true},
                                  {ZeroOneStep::kShared, false, false},
                                  {ZeroOneStep::kLocal},
                                  {ZeroOneStep::kJoin},
                                  {ZeroOneStep::kPlace}};

struct Result {
  Numbers numbers;
  std::vector<bf16> param;
};

Result run(const Exec& device, const Kind& kind, const Numbers& x, uint32_t non_finite = 0) {
  const test::DeviceStep step(device, step_state(non_finite));
  const auto n = int64_t(x.master.size());
  const DeviceArray<float> master(device, x.master), grad(device, x.grad), m(device, x.m),
      v(device, x.v), v_weight(device, x.v_weight), anchor(device, x.anchor), sum(device, x.sum),
      rates(device, x.rates);
  const DeviceArray<bf16> param(device, std::vector<bf16>(size_t(n)));
  kernels::zero_one_adam(step.exec(), {.step = kind.step,
                                       .master = master.view(),
                                       .grad = grad.view(),
                                       .m = m.view(),
                                       .v = v.view(),
                                       .v_weight = v_weight.view(),
                                       .anchor = anchor.view(),
                                       .sum = sum.view(),
                                       .rates = rates.view(),
                                       .param = param.view(),
                                       .updates_v = kind.updates_v,
                                       .clips = kind.clips,
                                       .grad_factor = kGradFactor,
                                       .lr_factor = kLrFactor,
                                       .beta1 = kBeta1,
                                       .beta2 = kBeta2,
                                       .eps = kEps,
                                       .weight_decay = kDecay});
  for (const auto* array : {&master, &m, &v, &v_weight, &anchor, &sum, &rates}) {
    CHECK(array->margins_intact());
  }
  return {{master.download(), x.grad, m.download(), v.download(), v_weight.download(),
           anchor.download(), sum.download(), rates.download()},
          param.download()};
}

// One element after the step, in f64; weight and rates are those of its block.
struct Element {
  double w, m, v, weight, anchor, sum, rates;
};

Element want_of(const Kind& kind, Element e, double grad) {
  const StepState s = step_state();
  const double lr = s.lr, correction = s.bias_correction1;
  const double g = double(kGradFactor) * (kind.clips ? double(s.clip_factor) : 1) * grad;
  const double kept = lr * double(kLrFactor) * double(kDecay);
  const auto step = [&](double u) {
    return e.v == 0 ? 0 : double(kLrFactor) * u / (std::sqrt(e.v / e.weight) + double(kEps));
  };
  const double mixed = double(kBeta1) * e.m + (1 - double(kBeta1)) * g;
  switch (kind.step) {
    case ZeroOneStep::kShared:
      e.m = mixed;
      if (kind.updates_v) {
        e.v = double(kBeta2) * e.v + (1 - double(kBeta2)) * g * g;
        e.weight = double(kBeta2) * e.weight + (1 - double(kBeta2));
      }
      e.w = e.w - kept * e.w - step(lr * e.m / correction);
      break;
    case ZeroOneStep::kLocal:
      e.m = e.v == 0 ? 0 : mixed;
      e.sum += lr * e.m / correction;
      e.anchor -= kept * e.anchor;
      e.w = e.anchor - step(e.sum);
      e.rates += lr;
      break;
    case ZeroOneStep::kJoin:
      e.w = e.anchor = e.anchor - step(e.sum);
      e.m = correction * e.sum / e.rates;
      e.sum = e.rates = 0;
      break;
    case ZeroOneStep::kPlace: e.w = e.anchor - step(e.sum); break;
  }
  return e;
}

Element element_of(const Numbers& x, size_t i) {
  const size_t block = i / size_t(kWeightBlock);
  return {x.master[i], x.m[i], x.v[i], x.v_weight[block], x.anchor[i], x.sum[i], x.rates[block]};
}

// Each number is the result of at most ten operations on numbers of its size, or of a sum whose
// terms are below `scale`.
void check_close(float got, double want, double scale) {
  REQUIRE(std::abs(double(got) - want) <= 10 * 0x1p-24 * (std::abs(want) + scale));
}

}  // namespace

TEST_CASE("the steps of 0/1 Adam are those of its formulas", "[kernels][zero_one_adam]") {
  for (const Exec& device : test::devices_with({&kernels::zero_one_adam})) {
    for (const Kind& kind : kKinds) {
      for (const int64_t n : kSizes) {
        CAPTURE(int(device.device.type), int(kind.step), n);
        const Numbers x = numbers_of(n);
        const Result got = run(device, kind, x);
        for (size_t i = 0; i < size_t(n); ++i) {
          const Element before = element_of(x, i), found = element_of(got.numbers, i);
          const Element want = want_of(kind, before, x.grad[i]);
          const double spread = std::abs(want.w - want.anchor) + std::abs(want.w - before.w);
          check_close(float(found.w), want.w,
                      spread + std::abs(before.w) + std::abs(before.anchor));
          check_close(float(found.m), want.m, std::abs(before.m) + std::abs(x.grad[i]));
          check_close(float(found.v), want.v, 0);
          check_close(float(found.weight), want.weight, 0);
          check_close(float(found.anchor), want.anchor, spread + std::abs(before.anchor));
          check_close(float(found.sum), want.sum, std::abs(before.sum));
          check_close(float(found.rates), want.rates, 0);
          REQUIRE(float(got.param[i]) == float(bf16(got.numbers.master[i])));
        }
      }
    }
  }
}

TEST_CASE("devices have the same bits of 0/1 Adam", "[kernels][zero_one_adam]") {
  const auto devices = test::devices_with({&kernels::zero_one_adam});
  for (const Kind& kind : kKinds) {
    const Numbers x = numbers_of(5000);
    const Result first = run(devices.front(), kind, x);
    for (const Exec& device : devices) {
      CAPTURE(int(device.device.type), int(kind.step));
      const Result other = run(device, kind, x);
      CHECK(other.numbers.master == first.numbers.master);
      CHECK(other.numbers.m == first.numbers.m);
      CHECK(other.numbers.v == first.numbers.v);
      CHECK(other.numbers.v_weight == first.numbers.v_weight);
      CHECK(other.numbers.anchor == first.numbers.anchor);
      CHECK(other.numbers.sum == first.numbers.sum);
      CHECK(other.numbers.rates == first.numbers.rates);
    }
  }
}

TEST_CASE("what 0/1 Adam places is what its steps have left", "[kernels][zero_one_adam]") {
  for (const Exec& device : test::devices_with({&kernels::zero_one_adam})) {
    for (const ZeroOneStep step : {ZeroOneStep::kLocal, ZeroOneStep::kJoin}) {
      CAPTURE(int(device.device.type), int(step));
      const Result after = run(device, {step}, numbers_of(3000));
      Numbers lost = after.numbers;
      lost.master.assign(lost.master.size(), 0);
      // Whatever has become of the step, as it is called between steps too.
      CHECK(run(device, {ZeroOneStep::kPlace}, lost, /*non_finite=*/1).numbers.master ==
            after.numbers.master);
    }
  }
}

TEST_CASE("0/1 Adam leaves all alone in a step that is not finite", "[kernels][zero_one_adam]") {
  const Numbers x = numbers_of(1000);
  for (const Exec& device : test::devices_with({&kernels::zero_one_adam})) {
    for (const Kind& kind : kKinds) {
      if (kind.step == ZeroOneStep::kPlace) continue;
      const Numbers after = run(device, kind, x, /*non_finite=*/1).numbers;
      CHECK((after.master == x.master && after.m == x.m && after.v == x.v));
      CHECK((after.anchor == x.anchor && after.sum == x.sum && after.rates == x.rates));
      CHECK(after.v_weight == x.v_weight);
    }
  }
}

TEST_CASE("0/1 Adam refuses states of other lengths", "[kernels][zero_one_adam]") {
  const Exec device = test::devices_with({&kernels::zero_one_adam}).front();
  Numbers x = numbers_of(1000);
  x.v_weight.pop_back();
  CHECK_THROWS_AS(run(device, {ZeroOneStep::kShared}, x), ShapeError);
  x = numbers_of(1000);
  x.sum.pop_back();
  CHECK_THROWS_AS(run(device, {ZeroOneStep::kLocal}, x), ShapeError);
}

}  // namespace shale
