#include "shale/kernels/optim.h"

#include <cmath>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;

StepState step_state() {
  StepState state;
  state.lr = 2e-3f;
  state.bias_correction1 = 1 - 0.9f * 0.9f * 0.9f;
  state.bias_correction2 = 1 - 0.95f * 0.95f * 0.95f;
  state.clip_factor = 0.7f;
  return state;
}

struct Factors {
  float lr_factor = 0.5f, weight_decay = 0.1f, momentum = 0.9f;
};

// State of an optimizer after some steps: master weights and moments; and the next gradient.
template <typename Grad>
struct Case {
  std::vector<float> master, m, v;
  std::vector<Grad> grad;
};

template <typename Grad>
Case<Grad> make_case(int64_t n) {
  Case<Grad> c = {.master = test::randn<float>(n, 1),
                  .m = test::randn<float>(n, 2, 0, 0.1),
                  .v = test::randn<float>(n, 3, 0, 0.1),
                  .grad = test::randn<Grad>(n, 4)};
  for (float& v : c.v) v = v * v;
  return c;
}

struct Result {
  Doubles master, m, v;
};

template <typename Grad, typename Round>
Result ref_adamw(const Case<Grad>& c, const Factors& f, Round round) {
  const StepState s = step_state();
  const double b1 = double{0.9f}, b2 = double{0.95f},
               lr = round(double{s.lr} * double{f.lr_factor});
  Result out;
  for (size_t i = 0; i < c.master.size(); ++i) {
    const double w = double{c.master[i]};
    const double g = round(double{s.clip_factor} * test::to_f64(c.grad[i]));
    const double m = round(b1 * double{c.m[i]} + round((1 - b1) * g));
    const double v = round(b2 * double{c.v[i]} + round((1 - b2) * round(g * g)));
    const double m_hat = round(m / double{s.bias_correction1});
    const double v_hat = round(v / double{s.bias_correction2});
    const double adam = round(m_hat / round(round(std::sqrt(v_hat)) + double{1e-8f}));
    out.master.push_back(round(w - lr * round(adam + double{f.weight_decay} * w)));
    out.m.push_back(m);
    out.v.push_back(v);
  }
  return out;
}

template <typename Grad, typename Round>
Result ref_sgd(const Case<Grad>& c, const Factors& f, bool with_m, Round round) {
  const StepState s = step_state();
  const double lr = round(double{s.lr} * double{f.lr_factor});
  Result out;
  for (size_t i = 0; i < c.master.size(); ++i) {
    const double w = double{c.master[i]};
    double g =
        round(round(double{s.clip_factor} * test::to_f64(c.grad[i])) + double{f.weight_decay} * w);
    if (with_m) g = round(double{f.momentum} * double{c.m[i]} + g);
    out.master.push_back(round(w - lr * g));
    out.m.push_back(with_m ? g : double{c.m[i]});
  }
  return out;
}

template <typename Param>
struct Run {
  std::vector<float> master, m, v;
  std::vector<Param> param;
};

enum class Kind { kAdamW, kSgd, kSgdPlain };

// Runs one step, in spans that end at `cuts`.
template <typename Param, typename Grad>
Run<Param> run(const Exec& base, Kind kind, const Case<Grad>& c, std::vector<int64_t> cuts = {},
               StepState state = step_state()) {
  const test::DeviceStep step(base, state);
  const auto n = int64_t(c.master.size());
  const DeviceArray<float> master(base, c.master), m(base, c.m), v(base, c.v);
  const DeviceArray<Grad> grad(base, c.grad);
  const DeviceArray<Param> param(base, test::poison<Param>(n));
  cuts.push_back(n);
  const Factors f;
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    const auto span = [&](const auto& array) { return array.view().flat(begin, end - begin); };
    if (kind == Kind::kAdamW) {
      kernels::adamw(step.exec(), {.master = span(master),
                                   .grad = span(grad),
                                   .m = span(m),
                                   .v = span(v),
                                   .param = span(param),
                                   .lr_factor = f.lr_factor,
                                   .weight_decay = f.weight_decay});
    } else {
      kernels::sgd(step.exec(), {.master = span(master),
                                 .grad = span(grad),
                                 .m = kind == Kind::kSgd ? span(m) : View(),
                                 .param = span(param),
                                 .lr_factor = f.lr_factor,
                                 .momentum = f.momentum,
                                 .weight_decay = f.weight_decay});
    }
    begin = end;
  }
  CHECK((master.margins_intact() && m.margins_intact() && v.margins_intact() &&
         param.margins_intact()));
  return {master.download(), m.download(), v.download(), param.download()};
}

const std::vector<int64_t> kSizes = {0, 1, 15, 16, 17, 1000, 40000};

template <typename Param>
std::vector<Param> rounded_to(const std::vector<float>& values) {
  std::vector<Param> out;
  for (const float value : values) out.push_back(Param(value));
  return out;
}

}  // namespace

TEMPLATE_TEST_CASE("adamw agrees with f64 on every device", "[kernels][optim]", float, bf16) {
  const int64_t n = GENERATE(from_range(kSizes));
  const auto c = make_case<TestType>(n);
  const auto exact = ref_adamw(c, {}, test::Exact());
  const auto rounded = ref_adamw(c, {}, test::RoundTo<float>());
  for (const Exec& exec : test::devices_with({&kernels::adamw})) {
    CAPTURE(n);
    const auto got = run<bf16>(exec, Kind::kAdamW, c);
    CHECK(test::error_ratio(got.master, exact.master, rounded.master, 1) <= 1);
    CHECK(test::error_ratio(got.m, exact.m, rounded.m, 1) <= 1);
    CHECK(test::error_ratio(got.v, exact.v, rounded.v, 1) <= 1);
    CHECK(test::same_bits(got.param, rounded_to<bf16>(got.master)));
    CHECK(test::same_bits(run<f16>(exec, Kind::kAdamW, c).param, rounded_to<f16>(got.master)));
  }
}

TEMPLATE_TEST_CASE("sgd agrees with f64 on every device", "[kernels][optim]", float, bf16) {
  const int64_t n = GENERATE(from_range(kSizes));
  const Kind kind = GENERATE(Kind::kSgd, Kind::kSgdPlain);
  const auto c = make_case<TestType>(n);
  const bool with_m = kind == Kind::kSgd;
  const auto exact = ref_sgd(c, {}, with_m, test::Exact());
  const auto rounded = ref_sgd(c, {}, with_m, test::RoundTo<float>());
  for (const Exec& exec : test::devices_with({&kernels::sgd})) {
    CAPTURE(n, with_m);
    const auto got = run<bf16>(exec, kind, c);
    CHECK(test::error_ratio(got.master, exact.master, rounded.master, 1) <= 1);
    CHECK(test::error_ratio(got.m, exact.m, rounded.m, 1) <= 1);
    CHECK(test::same_bits(got.param, rounded_to<bf16>(got.master)));
  }
}

TEST_CASE("an optimizer step has the same bits however its span is cut", "[kernels][optim]") {
  const Kind kind = GENERATE(Kind::kAdamW, Kind::kSgd, Kind::kSgdPlain);
  const auto c = make_case<float>(5000);
  for (const Exec& exec : test::devices_with({&kernels::adamw, &kernels::sgd})) {
    const auto whole = run<bf16>(exec, kind, c);
    const std::vector<std::vector<int64_t>> all_cuts = {
        {1}, {4999}, {1024, 2048, 3072}, {3, 10, 27, 100, 101, 1777, 1777, 4096}};
    for (const auto& cuts : all_cuts) {
      const auto cut = run<bf16>(exec, kind, c, cuts);
      CHECK(test::same_bits(cut.master, whole.master));
      CHECK(test::same_bits(cut.m, whole.m));
      CHECK(test::same_bits(cut.v, whole.v));
      CHECK(test::same_bits(cut.param, whole.param));
    }
  }
}

TEMPLATE_TEST_CASE("an optimizer step has the CPU's bits on every device", "[kernels][optim]",
                   float, bf16) {
  if (!__builtin_cpu_supports("fma")) {
    WARN("skipped: this CPU rounds twice where a GPU has a fused multiply-add");
    return;
  }
  const Kind kind = GENERATE(Kind::kAdamW, Kind::kSgd, Kind::kSgdPlain);
  const auto c = make_case<TestType>(3001);
  const auto want = run<bf16>(test::devices()[0], kind, c);
  for (const Exec& exec : test::devices_with({&kernels::adamw, &kernels::sgd})) {
    const auto got = run<bf16>(exec, kind, c);
    CHECK(test::same_bits(got.master, want.master));
    CHECK(test::same_bits(got.m, want.m));
    CHECK(test::same_bits(got.v, want.v));
    CHECK(test::same_bits(got.param, want.param));
  }
}

TEST_CASE("an optimizer step has the same bits for any number of threads", "[kernels][optim]") {
  const Kind kind = GENERATE(Kind::kAdamW, Kind::kSgd);
  const auto c = make_case<float>(70001);
  CHECK(test::same_bits_for_any_threads(
      test::devices()[0], [&](const Exec& e) { return run<bf16>(e, kind, c).master; }));
}

TEST_CASE("an optimizer step writes nothing when gradients are not finite", "[kernels][optim]") {
  const Kind kind = GENERATE(Kind::kAdamW, Kind::kSgd);
  const auto c = make_case<float>(100);
  StepState state = step_state();
  state.non_finite = 1;
  for (const Exec& exec : test::devices_with({&kernels::adamw, &kernels::sgd})) {
    const auto got = run<bf16>(exec, kind, c, {}, state);
    CHECK(test::same_bits(got.master, c.master));
    CHECK(test::same_bits(got.m, c.m));
    CHECK(test::same_bits(got.v, c.v));
    CHECK(got.param[0].bits == 0xffff);  // param keeps its initial value
  }
}

TEST_CASE("the average of weights moves by its share of the distance", "[kernels][optim]") {
  for (const int64_t n : {0, 1, 3, 64, 3001, 70001}) {
    const auto w = test::randn<float>(n, 1), a = test::randn<float>(n, 2);
    std::vector<float> on_cpu;
    for (const Exec& exec : test::devices_with({&kernels::weight_average})) {
      CAPTURE(n);
      const DeviceArray<float> master(exec, w), average(exec, a), kept(exec, a);
      const test::DeviceStep step(exec, step_state());
      kernels::weight_average(
          step.exec(), {.master = master.view(), .average = average.view(), .share = 0.125f});
      const auto got = average.download();
      for (size_t i = 0; i < got.size(); ++i) {
        const double want = double{a[i]} + 0.125 * (double{w[i]} - double{a[i]});
        REQUIRE(std::abs(double{got[i]} - want) <= 0x1p-22);  // error of two roundings below 8
      }
      if (on_cpu.empty()) on_cpu = got;
      if (__builtin_cpu_supports("fma")) CHECK(test::same_bits(got, on_cpu));
      StepState skipped = step_state();
      skipped.non_finite = 1;
      const test::DeviceStep none(exec, skipped);
      kernels::weight_average(none.exec(),
                              {.master = master.view(), .average = kept.view(), .share = 0.5f});
      CHECK(test::same_bits(kept.download(), a));
      CHECK(test::same_bits(master.download(), w));
    }
  }
}

TEST_CASE("optimizers name the argument that is wrong", "[kernels][optim]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8), b(exec, 9);
  const DeviceArray<f16> half(exec, 8);
  kernels::AdamWArgs args = {
      .master = a.view(), .grad = b.view(), .m = a.view(), .v = a.view(), .param = {}};
  const auto adamw = [&] { kernels::adamw(exec, args); };
  CHECK(test::message_of<ShapeError>(adamw) == "adamw: grad is fp32[9], expected shape [8]");
  args.grad = half.view();
  CHECK(test::message_of<DTypeError>(adamw) == "adamw: grad is fp16[8], expected fp32 or bf16");
  args.grad = a.view();
  args.param = a.view();
  CHECK(test::message_of<DTypeError>(adamw) == "adamw: param is fp32[8], expected bf16 or fp16");
  args.param = {};
  CHECK(test::message_of<InternalError>(adamw) == "adamw: exec.step is null");
}

}  // namespace shale
