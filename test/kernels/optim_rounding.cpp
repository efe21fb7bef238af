// Tests AdamW without masters: bf16 parameters with stochastic rounding.
#include <cmath>

#include "shale/base/rng.h"
#include "shale/kernels/optim.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

constexpr uint64_t kStream = 0x123456789abcdef0ull;

StepState step_state(uint64_t step = 7) {
  StepState state;
  state.seed = 99;
  state.step = step;
  state.lr = 1e-3f;
  state.bias_correction1 = 0.5f;
  state.bias_correction2 = 0.25f;
  return state;
}

template <typename Grad>
struct Case {
  std::vector<bf16> weights;
  std::vector<Grad> grad;
  std::vector<float> m, v;
};

template <typename Grad>
Case<Grad> make_case(int64_t n) {
  Case<Grad> c = {.weights = test::randn<bf16>(n, 1),
                  .grad = test::randn<Grad>(n, 2),
                  .m = test::randn<float>(n, 3, 0, 0.1),
                  .v = test::randn<float>(n, 4, 0, 0.1)};
  for (float& v : c.v) v = v * v;
  return c;
}

struct Run {
  std::vector<bf16> weights;
  std::vector<float> m, v;
};

// Runs one step, in spans that end at `cuts`. These elements are the parameter's elements from
// `first` on.
template <typename Grad>
Run run(const Exec& base, const Case<Grad>& c, std::vector<int64_t> cuts = {},
        const StepState& state = step_state(), int64_t first = 0) {
  const test::DeviceStep step(base, state);
  const DeviceArray<bf16> weights(base, c.weights);
  const DeviceArray<Grad> grad(base, c.grad);
  const DeviceArray<float> m(base, c.m), v(base, c.v);
  cuts.push_back(int64_t(c.weights.size()));
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    const auto span = [&](const auto& array) { return array.view().flat(begin, end - begin); };
    kernels::adamw(step.exec(), {.master = span(weights),
                                 .grad = span(grad),
                                 .m = span(m),
                                 .v = span(v),
                                 .weight_decay = 0.1f,
                                 .rounding = {.stream = kStream, .first = first + begin}});
    begin = end;
  }
  CHECK((weights.margins_intact() && m.margins_intact() && v.margins_intact()));
  return {weights.download(), m.download(), v.download()};
}

// Runs the step in f32, with masters.
template <typename Grad>
std::vector<float> unrounded(const Exec& base, const Case<Grad>& c) {
  const test::DeviceStep step(base, step_state());
  std::vector<float> wide;
  for (const bf16 w : c.weights) wide.push_back(to_f32(w));
  const DeviceArray<float> weights(base, wide), m(base, c.m), v(base, c.v);
  const DeviceArray<Grad> grad(base, c.grad);
  kernels::adamw(step.exec(), {.master = weights.view(),
                               .grad = grad.view(),
                               .m = m.view(),
                               .v = v.view(),
                               .weight_decay = 0.1f});
  return weights.download();
}

// Rounds stochastically, as kernels/optim.h defines.
bf16 rounded(float value, int64_t element, const StepState& state) {
  const PhiloxCounter words = philox(
      {uint32_t(element / 4), uint32_t(state.step), uint32_t(kStream), uint32_t(kStream >> 32)},
      rng_key(state.seed, RngDomain::kRounding));
  const uint32_t bits = std::bit_cast<uint32_t>(value) + (words[size_t(element % 4)] & 0xffffu);
  return bf16(std::bit_cast<float>(bits & 0xffff0000u));
}

}  // namespace

TEMPLATE_TEST_CASE("adamw without masters rounds as its header defines, on every device",
                   "[kernels][optim]", float, bf16) {
  const int64_t n = GENERATE(0, 1, 3, 16, 1027, 5000);
  const int64_t first = GENERATE(as<int64_t>{}, 0, 5, (int64_t{1} << 34) - 5000);
  const auto c = make_case<TestType>(n);
  for (const Exec& exec : test::devices_with({&kernels::adamw})) {
    CAPTURE(n, first);
    const auto wide = unrounded(exec, c);
    std::vector<bf16> want;
    for (int64_t i = 0; i < n; ++i) {
      want.push_back(rounded(wide[size_t(i)], first + i, step_state()));
    }
    CHECK(test::same_bits(run(exec, c, {}, step_state(), first).weights, want));
  }
}

TEST_CASE("adamw without masters has the same bits however cut, and for any threads",
          "[kernels][optim]") {
  const auto c = make_case<bf16>(5000);
  for (const Exec& exec : test::devices_with({&kernels::adamw})) {
    const Run whole = run(exec, c);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{1}, {1024, 2048}, {3, 10, 27, 100, 101, 1777, 1777, 4096}}) {
      const Run cut = run(exec, c, cuts);
      CHECK(test::same_bits(cut.weights, whole.weights));
      CHECK(test::same_bits(cut.m, whole.m));
      CHECK(test::same_bits(cut.v, whole.v));
    }
  }
  const auto large = make_case<float>(70001);
  CHECK(test::same_bits_for_any_threads(test::devices()[0],
                                        [&](const Exec& e) { return run(e, large).weights; }));
}

TEST_CASE("stochastic rounding keeps the mean of changes that are too small for bf16",
          "[kernels][optim]") {
  // Weights start at 1. Numbers just below 1 are 2^-8 apart, so updates of 1e-3 are a quarter of an
  // ulp.
  const int64_t n = 20000;
  const Case<float> c = {.weights = std::vector<bf16>(size_t(n), bf16(1.f)),
                         .grad = std::vector<float>(size_t(n), 1.f),
                         .m = std::vector<float>(size_t(n), 0.5f),
                         .v = std::vector<float>(size_t(n), 0.25f)};
  for (const Exec& exec : test::devices_with({&kernels::adamw})) {
    const double want = double{unrounded(exec, c)[0]};
    const auto got = run(exec, c).weights, later = run(exec, c, {}, step_state(8)).weights;
    double sum = 0;
    int64_t moved = 0, different = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      sum += double{to_f32(got[i])};
      moved += got[i].bits != c.weights[i].bits ? 1 : 0;
      different += got[i].bits != later[i].bits ? 1 : 0;
    }
    CHECK((moved > 0 && moved < n));
    // Allows 5 standard deviations of a mean of 20000 numbers, each within an ulp of 2^-8.
    CHECK(std::abs(sum / double(n) - want) < 5 * 0x1p-8 * 0.5 / std::sqrt(double(n)));
    CHECK(different > 0);  // another step has other random words
  }
}

TEST_CASE("adamw without masters refuses a rounded copy and a place outside the parameter",
          "[kernels][optim]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<bf16> w(exec, 8);
  const DeviceArray<float> f(exec, 8);
  kernels::AdamWArgs args = {
      .master = w.view(), .grad = f.view(), .m = f.view(), .v = f.view(), .param = w.view()};
  const auto adamw = [&] { kernels::adamw(exec, args); };
  CHECK(test::message_of<DTypeError>(adamw) ==
        "adamw: master is bf16[8], expected fp32 when a param is given");
  args.param = {};
  args.rounding.first = -1;
  CHECK(test::message_of<ShapeError>(adamw) ==
        "adamw: master has the elements -1 to 6 of its parameter, expected elements within 0 to "
        "2^34 - 1");
}

}  // namespace shale
