// Tests optimizers with small states: compares them with the same step with f32 states and with
// f64.
#include <cmath>

#include "shale/kernels/dynamic_map.h"
#include "shale/kernels/optim.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::kMomentBlock;
using test::DeviceArray;

const std::vector<int64_t> kSizes = {0, 1, 15, 17, 64, 65, 255, 256, 257, 1000, 40000};

StepState step_state() {
  StepState state;
  state.lr = 2e-3f;
  state.bias_correction1 = 1 - 0.9f * 0.9f;
  state.bias_correction2 = 1 - 0.95f * 0.95f;
  state.clip_factor = 0.7f;
  return state;
}

template <typename To, typename From>
std::vector<To> convert(const std::vector<From>& values) {
  std::vector<To> out;
  for (const From value : values) out.push_back(To(to_f32(value)));
  return out;
}

std::vector<float> squares(std::vector<float> values) {
  for (float& value : values) value *= value;
  return values;
}

struct Stepped {
  std::vector<float> master, m, v;
};

// Runs AdamW with f32 moments. optim.cpp compares it with f64.
Stepped adamw_f32(const Exec& exec, const std::vector<float>& w, const std::vector<float>& g,
                  const std::vector<float>& m, const std::vector<float>& v) {
  const test::DeviceStep step(exec, step_state());
  const DeviceArray<float> master(exec, w), grad(exec, g), dm(exec, m), dv(exec, v);
  kernels::adamw(step.exec(), {.master = master.view(),
                               .grad = grad.view(),
                               .m = dm.view(),
                               .v = dv.view(),
                               .weight_decay = 0.1f});
  return {master.download(), dm.download(), dv.download()};
}

// ---- AdamW with 8-bit moments ----

struct Codes {
  std::vector<uint8_t> code;
  std::vector<float> scale;
};

float value_of(const Codes& codes, const kernels::DynamicMap& map, size_t i) {
  return codes.scale[i / kMomentBlock] * map.levels[codes.code[i]];
}

std::vector<float> values_of(const Codes& codes, const kernels::DynamicMap& map) {
  std::vector<float> out;
  for (size_t i = 0; i < codes.code.size(); ++i) out.push_back(value_of(codes, map, i));
  return out;
}

// Returns the code of the nearest level, by trying all of them; a tie goes to the one farther from
// zero.
uint8_t nearest_code(const kernels::DynamicMap& map, float x, bool is_signed) {
  int best = map.zero;
  for (int code = 0; code < 256; ++code) {
    const auto distance = [&](int c) { return std::abs(map.levels[size_t(c)] - x); };
    const bool farther = std::abs(map.levels[size_t(code)]) > std::abs(map.levels[size_t(best)]);
    if (distance(code) < distance(best) || (distance(code) == distance(best) && farther)) {
      best = code;
    }
  }
  if (!is_signed && x > 0) best = std::max(best, 1);
  return uint8_t(best);
}

Codes quantized(const std::vector<float>& values, const kernels::DynamicMap& map, bool is_signed) {
  Codes out;
  for (size_t begin = 0; begin < values.size(); begin += kMomentBlock) {
    const size_t end = std::min(values.size(), begin + kMomentBlock);
    float scale = 0;
    for (size_t i = begin; i < end; ++i) scale = std::max(scale, std::abs(values[i]));
    out.scale.push_back(scale);
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (size_t i = begin; i < end; ++i) {
      out.code.push_back(nearest_code(map, values[i] * inverse, is_signed));
    }
  }
  return out;
}

struct Stepped8 {
  std::vector<float> master;
  std::vector<bf16> param;
  Codes m, v;
};

// Runs one step, in spans that end at `cuts`.
Stepped8 adamw_8bit(const Exec& exec, const std::vector<float>& w, const std::vector<float>& g,
                    const Codes& m, const Codes& v, std::vector<int64_t> cuts = {}) {
  const test::DeviceStep step(exec, step_state());
  const auto n = int64_t(w.size());
  const DeviceArray<float> master(exec, w), grad(exec, g), ms(exec, m.scale), vs(exec, v.scale);
  const DeviceArray<uint8_t> mc(exec, m.code), vc(exec, v.code);
  const DeviceArray<bf16> param(exec, n);
  cuts.push_back(n);
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    const auto span = [&](const auto& array) { return array.view().flat(begin, end - begin); };
    const auto scales = [&](const auto& array) {
      return array.view().flat(begin / kMomentBlock,
                               (end - begin + kMomentBlock - 1) / kMomentBlock);
    };
    kernels::adamw_8bit(step.exec(), {.master = span(master),
                                      .grad = span(grad),
                                      .m = span(mc),
                                      .v = span(vc),
                                      .m_scale = scales(ms),
                                      .v_scale = scales(vs),
                                      .param = span(param),
                                      .weight_decay = 0.1f});
    begin = end;
  }
  CHECK((master.margins_intact() && mc.margins_intact() && vc.margins_intact() &&
         ms.margins_intact() && vs.margins_intact() && param.margins_intact()));
  return {master.download(),
          param.download(),
          {mc.download(), ms.download()},
          {vc.download(), vs.download()}};
}

struct Case8 {
  std::vector<float> w, g;
  Codes m, v;
};

Case8 case_8bit(int64_t n) {
  std::vector<float> g = test::randn<float>(n, 4);
  // Adjacent values have very different sizes, and some are zero.
  for (size_t i = 0; i < g.size(); ++i) g[i] *= i % 7 == 3 ? 0.f : std::pow(10.f, -float(i % 5));
  return {test::randn<float>(n, 1), std::move(g),
          quantized(test::randn<float>(n, 2, 0, 0.1), kernels::kSignedMap, true),
          quantized(squares(test::randn<float>(n, 3, 0, 0.1)), kernels::kUnsignedMap, false)};
}

}  // namespace

TEST_CASE("the 8-bit levels are those of dynamic quantisation", "[kernels][optim]") {
  const auto& s = kernels::kSignedMap.levels;
  const auto& u = kernels::kUnsignedMap.levels;
  CHECK((s[127] == 0 && s[255] == 1 && u[0] == 0 && u[255] == 1));
  // The expected levels were computed by hand. The lowest decade has one level; of the highest
  // decade, the first and last level are checked.
  CHECK(s[128] == Approx(0.55e-6));
  CHECK(s[254] == Approx(1 - 0.9 / 128));
  CHECK(s[254 - 63] == Approx(0.1 + 0.9 / 128));
  CHECK(u[1] == Approx(0.325e-6));
  CHECK(u[254] == Approx(1 - 0.9 / 256));
  for (size_t i = 0; i < 127; ++i) CHECK(s[i] == -s[254 - i]);
  for (size_t i = 1; i < 256; ++i) CHECK((s[i] > s[i - 1] && u[i] > u[i - 1]));
}

TEST_CASE("adamw with 8-bit moments is adamw, its moments rounded to the nearest levels",
          "[kernels][optim]") {
  const int64_t n = GENERATE(from_range(kSizes));
  const Case8 c = case_8bit(n);
  for (const Exec& exec : test::devices_with({&kernels::adamw, &kernels::adamw_8bit})) {
    CAPTURE(n);
    const Stepped want = adamw_f32(exec, c.w, c.g, values_of(c.m, kernels::kSignedMap),
                                   values_of(c.v, kernels::kUnsignedMap));
    const Stepped8 got = adamw_8bit(exec, c.w, c.g, c.m, c.v);
    CHECK(test::same_bits(got.master, want.master));
    CHECK(test::same_bits(got.param, convert<bf16>(want.master)));
    const Codes m = quantized(want.m, kernels::kSignedMap, true);
    const Codes v = quantized(want.v, kernels::kUnsignedMap, false);
    CHECK(got.m.code == m.code);
    CHECK(got.v.code == v.code);
    CHECK(test::same_bits(got.m.scale, m.scale));
    CHECK(test::same_bits(got.v.scale, v.scale));
  }
}

TEST_CASE("8-bit moments of zero are what zeroed memory holds", "[kernels][optim]") {
  const int64_t n = 300;
  const std::vector<float> w = test::randn<float>(n, 1), g = test::randn<float>(n, 2);
  const Codes zero = {std::vector<uint8_t>(n), std::vector<float>(5)};
  const std::vector<float> none(n);
  for (const Exec& exec : test::devices_with({&kernels::adamw, &kernels::adamw_8bit})) {
    const Stepped8 got = adamw_8bit(exec, w, g, zero, zero);
    CHECK(test::same_bits(got.master, adamw_f32(exec, w, g, none, none).master));
    // Without gradients no weight changes, and the moments stay zero.
    const Stepped8 still = adamw_8bit(exec, none, none, zero, zero);
    CHECK(still.master == none);
    CHECK(still.m.scale == std::vector<float>(5));
    CHECK(still.v.scale == std::vector<float>(5));
  }
}

TEST_CASE("a step with 8-bit moments has the same bits however cut, and for any threads",
          "[kernels][optim]") {
  const Case8 c = case_8bit(40000);
  const auto run = [&](const Exec& exec, const std::vector<int64_t>& cuts) {
    Stepped8 out = adamw_8bit(exec, c.w, c.g, c.m, c.v, cuts);
    for (const uint8_t code : out.m.code) out.master.push_back(float(code));
    for (const uint8_t code : out.v.code) out.master.push_back(float(code));
    return out.master;
  };
  for (const Exec& exec : test::devices_with({&kernels::adamw_8bit})) {
    const auto whole = run(exec, {});
    CHECK(test::same_bits(run(exec, {1024, 2048, 39936}), whole));
    CHECK(test::same_bits(run(exec, {64, 320, 16640}), whole));
  }
  CHECK(test::same_bits_for_any_threads(test::devices()[0],
                                        [&](const Exec& exec) { return run(exec, {}); }));
}

// ---- AdamW with bf16 moments ----

TEST_CASE("adamw with bf16 moments is adamw, its moments rounded", "[kernels][optim]") {
  const int64_t n = GENERATE(from_range(kSizes));
  const auto w = test::randn<float>(n, 1), g = test::randn<float>(n, 4);
  const auto m = convert<bf16>(test::randn<float>(n, 2, 0, 0.1));
  const auto v = convert<bf16>(squares(test::randn<float>(n, 3, 0, 0.1)));
  for (const Exec& exec : test::devices_with({&kernels::adamw})) {
    CAPTURE(n);
    const Stepped want = adamw_f32(exec, w, g, convert<float>(m), convert<float>(v));
    const test::DeviceStep step(exec, step_state());
    const DeviceArray<float> master(exec, w), grad(exec, g);
    const DeviceArray<bf16> dm(exec, m), dv(exec, v);
    kernels::adamw(step.exec(), {.master = master.view(),
                                 .grad = grad.view(),
                                 .m = dm.view(),
                                 .v = dv.view(),
                                 .weight_decay = 0.1f});
    CHECK((dm.margins_intact() && dv.margins_intact()));
    CHECK(test::same_bits(master.download(), want.master));
    CHECK(test::same_bits(dm.download(), convert<bf16>(want.m)));
    CHECK(test::same_bits(dv.download(), convert<bf16>(want.v)));
  }
}

// ---- Lion ----

namespace {

struct LionResult {
  std::vector<double> w, m;
};

template <typename Round>
LionResult ref_lion(const std::vector<float>& w, const std::vector<float>& g,
                    const std::vector<float>& m, Round round) {
  const StepState s = step_state();
  const double b1 = double{0.9f}, b2 = double{0.99f}, decay = double{0.1f};
  LionResult out;
  for (size_t i = 0; i < w.size(); ++i) {
    const double grad = round(double{s.clip_factor} * double{g[i]});
    const double mixed = round(b1 * double{m[i]} + round((1 - b1) * grad));
    const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
    out.w.push_back(round(double{w[i]} - double{s.lr} * round(sign + decay * double{w[i]})));
    out.m.push_back(round(b2 * double{m[i]} + round((1 - b2) * grad)));
  }
  return out;
}

}  // namespace

TEMPLATE_TEST_CASE("lion agrees with f64 on every device", "[kernels][optim]", float, bf16) {
  const int64_t n = GENERATE(from_range(kSizes));
  const auto w = test::randn<float>(n, 1);
  auto g = test::randn<float>(n, 4);
  auto m = convert<TestType>(test::randn<float>(n, 2));
  // These weights have a zero update.
  for (size_t i = 0; i < g.size(); i += 9) g[i] = 0, m[i] = TestType(0.f);
  const auto exact = ref_lion(w, g, convert<float>(m), test::Exact());
  const auto rounded = ref_lion(w, g, convert<float>(m), test::RoundTo<float>());
  for (const Exec& exec : test::devices_with({&kernels::lion})) {
    CAPTURE(n);
    const test::DeviceStep step(exec, step_state());
    const DeviceArray<float> master(exec, w), grad(exec, g);
    const DeviceArray<TestType> dm(exec, m);
    const DeviceArray<f16> param(exec, n);
    kernels::lion(step.exec(), {.master = master.view(),
                                .grad = grad.view(),
                                .m = dm.view(),
                                .param = param.view(),
                                .weight_decay = 0.1f});
    const auto got = master.download();
    CHECK(test::error_ratio(got, exact.w, rounded.w, 1) <= 1);
    CHECK(test::error_ratio(dm.download(), exact.m, rounded.m, 1) <= 1);
    CHECK(test::same_bits(param.download(), convert<f16>(got)));
  }
}

TEST_CASE("lion and adamw_8bit write nothing when gradients are not finite", "[kernels][optim]") {
  StepState state = step_state();
  state.non_finite = 1;
  const std::vector<float> ones(300, 1.f);
  const std::vector<uint8_t> codes(300, 200);
  for (const Exec& exec : test::devices_with({&kernels::lion, &kernels::adamw_8bit})) {
    const test::DeviceStep step(exec, state);
    const DeviceArray<float> w(exec, ones), g(exec, ones), m(exec, ones);
    const DeviceArray<float> scale(exec, std::vector<float>(5, 1.f));
    const DeviceArray<uint8_t> mc(exec, codes), vc(exec, codes);
    kernels::lion(step.exec(), {.master = w.view(), .grad = g.view(), .m = m.view()});
    kernels::adamw_8bit(step.exec(), {.master = w.view(),
                                      .grad = g.view(),
                                      .m = mc.view(),
                                      .v = vc.view(),
                                      .m_scale = scale.view(),
                                      .v_scale = scale.view()});
    CHECK((w.download() == ones && m.download() == ones));
    CHECK((mc.download() == codes && vc.download() == codes));
  }
}

TEST_CASE("lean optimizers name the argument that is wrong", "[kernels][optim]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8), two(exec, 2);
  const DeviceArray<uint8_t> codes(exec, 8);
  const DeviceArray<f16> half(exec, 8);
  CHECK(test::message_of<ShapeError>([&] {
          kernels::adamw_8bit(exec, {.master = a.view(),
                                     .grad = a.view(),
                                     .m = codes.view(),
                                     .v = codes.view(),
                                     .m_scale = two.view(),
                                     .v_scale = two.view()});
        }) == "adamw_8bit: m_scale is fp32[2], expected shape [1]");
  CHECK(test::message_of<DTypeError>([&] {
          kernels::lion(exec, {.master = a.view(), .grad = a.view(), .m = half.view()});
        }) == "lion: m is fp16[8], expected fp32 or bf16");
}

}  // namespace shale
