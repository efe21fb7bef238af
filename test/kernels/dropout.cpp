#include <algorithm>
#include <cmath>

#include "shale/base/rng.h"
#include "shale/kernels/elementwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

StepState step_state(uint64_t sample = 5) {
  return {.seed = 0x123456789abcdefull, .step = 11, .sample = sample};
}

template <typename T>
std::vector<T> run(const Exec& base, int64_t samples, const std::vector<T>& x,
                   const std::vector<T>& residual, float p, const StepState& state,
                   uint32_t site = 3) {
  const test::DeviceStep step(base, state);
  const Shape shape = {samples, int64_t(x.size()) / samples};
  const DeviceArray<T> d_x(base, x), d_r(base, residual), y(base, int64_t(x.size()));
  kernels::dropout(step.exec(), {.x = d_x.view(shape),
                                 .residual = residual.empty() ? View() : d_r.view(shape),
                                 .y = y.view(shape),
                                 .p = p,
                                 .site = site});
  CHECK(y.margins_intact());
  return y.download();
}

// Returns true if kernels/elementwise.h defines that dropout keeps this element.
bool kept(const StepState& state, int64_t sample, int64_t element, float p, uint32_t site) {
  const PhiloxCounter words =
      philox({uint32_t(element / 4), site, uint32_t(state.sample + uint64_t(sample)),
              uint32_t(state.step)},
             rng_key(state.seed, RngDomain::kDropout));
  return uniform_f32(words[size_t(element % 4)]) >= p;
}

}  // namespace

TEMPLATE_TEST_CASE("dropout has the mask that its header defines", "[kernels][dropout]", float,
                   bf16, f16) {
  const auto [samples, elements] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {3, 5}, {2, 64}, {3, 1023}, {2, 1024}, {2, 5003}}));
  const float p = GENERATE(0.f, 0.1f, 0.9f);
  const auto x = test::randn<TestType>(samples * elements, 1);
  const auto residual = test::randn<TestType>(samples * elements, 2);
  const StepState state = step_state();
  std::vector<TestType> want, want_added;
  for (int64_t i = 0; i < samples * elements; ++i) {
    const float scaled = to_f32(x[size_t(i)]) * (1.f / (1.f - p));
    const float value = kept(state, i / elements, i % elements, p, 3) ? scaled : 0.f;
    want.push_back(TestType(value));
    want_added.push_back(TestType(value + to_f32(residual[size_t(i)])));
  }
  for (const Exec& exec : test::devices_with({&kernels::dropout})) {
    CAPTURE(samples, elements, p);
    CHECK(test::same_bits(run<TestType>(exec, samples, x, {}, p, state), want));
    CHECK(test::same_bits(run(exec, samples, x, residual, p, state), want_added));
  }
}

TEST_CASE("dropout does not depend on how samples are batched", "[kernels][dropout]") {
  const std::vector<float> x(4 * 1001, 1.f);
  for (const Exec& exec : test::devices_with({&kernels::dropout})) {
    const auto whole = run<float>(exec, 4, x, {}, 0.3f, step_state(8));
    for (uint64_t s = 0; s < 4; ++s) {
      const std::vector<float> one(x.begin(), x.begin() + 1001);
      const auto part = run<float>(exec, 1, one, {}, 0.3f, step_state(8 + s));
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + int64_t(s) * 1001));
    }
  }
}

TEST_CASE("a part of samples has the mask that they have there", "[kernels][dropout]") {
  const int64_t samples = 3, elements = 2068;
  const auto x = test::randn<bf16>(samples * elements, 1);
  const StepState state = step_state();
  for (const Exec& base : test::devices_with({&kernels::dropout})) {
    const auto whole = run<bf16>(base, samples, x, {}, 0.5f, state);
    const test::DeviceStep step(base, state);
    // Parts of x, as first element and count: within a sample, across the end of a sample, over all
    // samples; some are ragged.
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 16}, {8, 1000}, {1024, 7}, {2064, 9}, {2000, 3000}, {4, samples * elements - 4}}) {
      CAPTURE(first, count);
      const DeviceArray<bf16> part(base, {x.begin() + first, x.begin() + first + count});
      kernels::dropout(step.exec(), {.x = part.view(),
                                     .y = part.view(),
                                     .p = 0.5f,
                                     .site = 3,
                                     .first = first,
                                     .sample_elements = elements});
      CHECK(part.margins_intact());
      CHECK(
          test::same_bits(part.download(), {whole.begin() + first, whole.begin() + first + count}));
    }
    const DeviceArray<bf16> part(base, x);
    CHECK_THROWS_AS(kernels::dropout(step.exec(), {.x = part.view(), .y = part.view(), .first = 8}),
                    ShapeError);
  }
}

TEST_CASE("dropout keeps the share 1 - p, and other sites, steps and seeds have other masks",
          "[kernels][dropout]") {
  const std::vector<float> x(100000, 1.f);
  for (const Exec& exec : test::devices_with({&kernels::dropout})) {
    const auto base = run<float>(exec, 1, x, {}, 0.25f, step_state());
    const auto zeros = double(std::count(base.begin(), base.end(), 0.f));
    // 5 standard deviations of the binomial distribution, sqrt(1e5 * 0.25 * 0.75) = 137.
    CHECK(std::abs(zeros - 25000) < 5 * 137);
    StepState other_step = step_state(), other_seed = step_state();
    other_step.step += 1;
    other_seed.seed += 1;
    for (const auto& other : {run<float>(exec, 1, x, {}, 0.25f, step_state(), 4),
                              run<float>(exec, 1, x, {}, 0.25f, other_step),
                              run<float>(exec, 1, x, {}, 0.25f, other_seed)}) {
      double both = 0;
      for (size_t i = 0; i < x.size(); ++i) both += base[i] == 0 && other[i] == 0 ? 1 : 0;
      CHECK(std::abs(both - 6250) < 5 * 77);  // 1e5 / 16 if independent; standard deviation 77
    }
  }
}

TEST_CASE("dropout has the same bits for any number of threads", "[kernels][dropout]") {
  const auto x = test::randn<float>(3 * 20001, 1);
  CHECK(test::same_bits_for_any_threads(test::devices()[0], [&](const Exec& e) {
    return run<float>(e, 3, x, {}, 0.5f, step_state());
  }));
}

TEST_CASE("dropout needs a probability below 1", "[kernels][dropout]") {
  for (const float p : {-0.1f, 1.f, float(NAN)}) {
    CHECK(test::contains(test::message_of<InternalError>([&] {
                           run<float>(test::devices()[0], 1, {1.f}, {}, p, step_state());
                         }),
                         "dropout: p is "));
  }
}

}  // namespace shale
