#include "shale/kernels/pointwise.h"

#include <cmath>
#include <functional>
#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/pointwise_graph.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::PointwiseArgs;
using kernels::PointwiseGraph;
using kernels::PointwiseOp;
using kernels::PointwiseProgram;
using test::DeviceArray;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<int64_t> kSizes = {0, 1, 3, 255, 256, 257, 5000, 40001};

// Returns a program with one op on one, two or three inputs.
PointwiseProgram program_of(PointwiseOp op, DType dtype) {
  PointwiseGraph graph;
  std::array<int, 3> in{};
  const int arity = kernels::arity_of(op);
  for (int i = 0; i < arity; ++i) in[size_t(i)] = graph.input(dtype);
  const int y = arity == 1   ? graph.apply(op, dtype, {in[0]})
                : arity == 2 ? graph.apply(op, dtype, {in[0], in[1]})
                             : graph.apply(op, dtype, {in[0], in[1], in[2]});
  return graph.compile("test", {y});
}

template <typename T>
std::vector<T> run_op(const Exec& exec, PointwiseOp op, const std::vector<std::vector<T>>& inputs) {
  const PointwiseProgram program = program_of(op, dtype_of<T>);
  std::vector<DeviceArray<T>> arrays;
  for (const auto& values : inputs) arrays.emplace_back(exec, values);
  const DeviceArray<T> y(exec, int64_t(inputs[0].size()));
  PointwiseArgs args{.program = &program};
  for (size_t i = 0; i < inputs.size(); ++i) args.inputs[i] = arrays[i].view();
  args.outputs[0] = y.view();
  kernels::pointwise(exec, args);
  CHECK(y.margins_intact());
  return y.download();
}

struct OpCase {
  PointwiseOp op;
  std::function<double(double, double, double)> reference;
  double low = -4, high = 4;  // range of the inputs
  double ulps = 1;            // allowed error in ulps, besides the rounding of the result
};

// Allowed errors are in ulps of the result, or of the smallest normal number if the result is
// smaller.
const std::vector<OpCase> kCases = {
    {PointwiseOp::kConvert, [](double a, double, double) { return a; }},
    {PointwiseOp::kAdd, [](double a, double b, double) { return a + b; }},
    {PointwiseOp::kSub, [](double a, double b, double) { return a - b; }},
    {PointwiseOp::kMul, [](double a, double b, double) { return a * b; }},
    {PointwiseOp::kDiv, [](double a, double b, double) { return a / b; }},
    {PointwiseOp::kMaximum, [](double a, double b, double) { return std::max(a, b); }},
    {PointwiseOp::kMinimum, [](double a, double b, double) { return std::min(a, b); }},
    // pow is exp(p log x). The argument is below 16, which costs 4 bits, plus the errors of exp and
    // log.
    {PointwiseOp::kPow, [](double a, double b, double) { return std::pow(a, b); }, 0.02, 4, 24},
    {PointwiseOp::kNeg, [](double a, double, double) { return -a; }},
    {PointwiseOp::kAbs, [](double a, double, double) { return std::abs(a); }},
    {PointwiseOp::kExp, [](double a, double, double) { return std::exp(a); }, -100, 88, 2},
    {PointwiseOp::kLog, [](double a, double, double) { return std::log(a); }, 1e-3, 40, 2},
    {PointwiseOp::kSqrt, [](double a, double, double) { return std::sqrt(a); }, 0, 40},
    {PointwiseOp::kRsqrt, [](double a, double, double) { return 1 / std::sqrt(a); }, 0.01, 40, 1.5},
    {PointwiseOp::kRelu, [](double a, double, double) { return std::max(a, 0.0); }},
    {PointwiseOp::kSigmoid, [](double a, double, double) { return 1 / (1 + std::exp(-a)); }, -80,
     80, 4},
    {PointwiseOp::kTanh, [](double a, double, double) { return std::tanh(a); }, -9, 9, 4},
    {PointwiseOp::kSilu, [](double a, double, double) { return a / (1 + std::exp(-a)); }, -80, 80,
     4},
    {PointwiseOp::kSoftplus, [](double a, double, double) { return std::log1p(std::exp(a)); }, -80,
     80, 4},
    // Near multiples of pi, results are tiny. The reduction of the argument is exact enough for
    // them.
    {PointwiseOp::kSin, [](double a, double, double) { return std::sin(a); }, -1e5, 1e5, 2},
    {PointwiseOp::kCos, [](double a, double, double) { return std::cos(a); }, -1e5, 1e5, 2},
    {PointwiseOp::kLess, [](double a, double b, double) { return double(a < b); }},
    {PointwiseOp::kLessEqual, [](double a, double b, double) { return double(a <= b); }},
    {PointwiseOp::kEqual, [](double a, double b, double) { return double(a == b); }},
    {PointwiseOp::kWhere, [](double a, double b, double c) { return a != 0 ? b : c; }},
    {PointwiseOp::kClamp, [](double a, double b, double c) { return std::min(std::max(a, b), c); }},
};

template <typename T>
std::vector<std::vector<T>> inputs_of(const OpCase& c, int64_t n) {
  std::vector<std::vector<T>> inputs(size_t(kernels::arity_of(c.op)));
  for (size_t k = 0; k < inputs.size(); ++k) {
    for (int64_t i = 0; i < n; ++i) {
      // Some inputs are equal, and some are zero if the range contains zero.
      const double u = i % 7 == 3 ? 0.5 : test::uniform_at(k + 1, i);
      inputs[k].push_back(test::make<T>(c.low + (c.high - c.low) * u));
    }
  }
  return inputs;
}

// Replaces every NaN by the same one, because the bits of a NaN depend on the hardware.
std::vector<float> with_one_nan(std::vector<float> values) {
  for (float& value : values) {
    if (std::isnan(value)) value = kNan;
  }
  return values;
}

// Returns the largest error in ulps of the expected value.
template <typename T>
double error_in_ulps(const std::vector<T>& got, const OpCase& c,
                     const std::vector<std::vector<T>>& inputs) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto at = [&](size_t k) { return k < inputs.size() ? test::to_f64(inputs[k][i]) : 0.0; };
    const double want = c.reference(at(0), at(1), at(2));
    const double value = test::to_f64(got[i]);
    if (value == want || (std::isnan(value) && std::isnan(want))) continue;
    if (!std::isfinite(want) || !std::isfinite(value)) return kInf;
    const double smallest = std::is_same_v<T, f16> ? 0x1p-14 : 0x1p-126;
    const double unit = std::ldexp(test::ulp<T>(), std::ilogb(std::max(std::abs(want), smallest)));
    worst = std::max(worst, std::abs(value - want) / unit);
  }
  return worst;
}

template <typename T>
void check_op(const OpCase& c) {
  // Limits f16 inputs to +-8, so that results do not overflow.
  OpCase narrow = c;
  if (std::is_same_v<T, f16>)
    narrow.low = std::max(c.low, -8.0), narrow.high = std::min(c.high, 8.0);
  const double allowed = 0.5 + (std::is_same_v<T, float> ? c.ulps : c.ulps * 0x1p-13);
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    for (const int64_t n : kSizes) {
      const auto inputs = inputs_of<T>(narrow, n);
      CAPTURE(kernels::name_of(c.op), to_string(exec.device), n);
      CHECK(error_in_ulps(run_op(exec, c.op, inputs), narrow, inputs) <= allowed);
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("pointwise ops agree with f64 on every device", "[kernels][pointwise]", float,
                   bf16, f16) {
  for (const OpCase& c : kCases) check_op<TestType>(c);
}

TEST_CASE("every pointwise op has a case here", "[kernels][pointwise]") {
  for (int op = int(PointwiseOp::kConvert); op < int(PointwiseOp::kStore); ++op) {
    CAPTURE(kernels::name_of(PointwiseOp(op)));
    CHECK(std::count_if(kCases.begin(), kCases.end(),
                        [&](const OpCase& c) { return int(c.op) == op; }) == 1);
  }
}

TEST_CASE("pointwise ops at the ends of their ranges", "[kernels][pointwise]") {
  struct End {
    PointwiseOp op;
    float x, want;
  };
  const std::vector<End> ends = {
      {PointwiseOp::kExp, kInf, kInf},
      {PointwiseOp::kExp, -kInf, 0},
      {PointwiseOp::kExp, 89, kInf},
      {PointwiseOp::kLog, 0, -kInf},
      {PointwiseOp::kLog, -1, kNan},
      {PointwiseOp::kLog, kInf, kInf},
      {PointwiseOp::kLog, 0x1p-149f, float(-149 * 0.6931471805599453)},
      {PointwiseOp::kSqrt, -1, kNan},
      {PointwiseOp::kRsqrt, 0, kInf},
      {PointwiseOp::kSigmoid, -kInf, 0},
      {PointwiseOp::kSigmoid, kInf, 1},
      {PointwiseOp::kTanh, kInf, 1},
      {PointwiseOp::kTanh, -kInf, -1},
      {PointwiseOp::kSoftplus, kInf, kInf},
      {PointwiseOp::kSoftplus, -kInf, 0},
      {PointwiseOp::kSilu, kInf, kInf},
      {PointwiseOp::kSin, kInf, kNan},
      {PointwiseOp::kSin, 0x1p44f, float(std::sin(0x1p44))},
      {PointwiseOp::kCos, 0x1p46f, kNan},
      {PointwiseOp::kRelu, -kInf, 0},
      {PointwiseOp::kNeg, 0, -0.f},
      {PointwiseOp::kAbs, -kInf, kInf},
  };
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    for (const End& end : ends) {
      CAPTURE(kernels::name_of(end.op), end.x, to_string(exec.device));
      const float got = run_op<float>(exec, end.op, {{end.x}})[0];
      CHECK(std::isnan(got) == std::isnan(end.want));
      CHECK((std::isnan(got) || std::signbit(got) == std::signbit(end.want)));
      // Infinities and zeros must be exact, other values within 2 ulp.
      const bool near = std::abs(got - end.want) <= 2 * 0x1p-23f * std::abs(end.want);
      CHECK((got == end.want || std::isnan(end.want) || near));
    }
  }
}

TEST_CASE("pointwise ops of one argument pass NaN on", "[kernels][pointwise]") {
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    for (const OpCase& c : kCases) {
      CAPTURE(kernels::name_of(c.op), to_string(exec.device));
      if (kernels::arity_of(c.op) != 1) continue;
      CHECK(std::isnan(run_op<float>(exec, c.op, {{kNan}})[0]));
    }
    for (const PointwiseOp op : {PointwiseOp::kMaximum, PointwiseOp::kMinimum, PointwiseOp::kPow}) {
      CHECK(std::isnan(run_op<float>(exec, op, {{kNan}, {1}})[0]));
      CHECK(std::isnan(run_op<float>(exec, op, {{1.5f}, {kNan}})[0]));
    }
  }
}

TEST_CASE("pow of negative numbers has whole exponents", "[kernels][pointwise]") {
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    const auto y = run_op<float>(exec, PointwiseOp::kPow,
                                 {{-2, -2, -2, 0, 0, -3, 0}, {2, 3, 0.5f, 0, 2, 0, -1}});
    const std::vector<double> want = {4, -8, kNan, 1, 0, 1, kInf};
    CHECK(test::max_error(y, want) <= 8 * 4 * 0x1p-24);
  }
}

TEST_CASE("pointwise ops have the same bits on every device and number of threads",
          "[kernels][pointwise]") {
  const Exec& cpu = test::devices()[0];
  for (const OpCase& c : kCases) {
    CAPTURE(kernels::name_of(c.op));
    const auto inputs = inputs_of<float>(c, 40001);
    const auto want = run_op(cpu, c.op, inputs);
    CHECK(test::same_bits_for_any_threads(
        cpu, [&](const Exec& exec) { return run_op(exec, c.op, inputs); }));
    if (!__builtin_cpu_supports("fma")) continue;
    for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
      CAPTURE(to_string(exec.device));
      CHECK(test::same_bits(with_one_nan(run_op(exec, c.op, inputs)), with_one_nan(want)));
    }
  }
}

TEST_CASE("pointwise reads inputs of any strides and dtypes", "[kernels][pointwise]") {
  PointwiseGraph graph;
  const int a = graph.input(DType::kF32), b = graph.input(DType::kBF16);
  const int c = graph.input(DType::kF16), m = graph.input(DType::kU8);
  const int ab = graph.apply(PointwiseOp::kMul, DType::kF32, {a, b});
  const int abc = graph.apply(PointwiseOp::kAdd, DType::kF32, {ab, c});
  const int y = graph.apply(PointwiseOp::kWhere, DType::kF32, {m, abc, graph.constant(-1)});
  const PointwiseProgram program = graph.compile("test", {y, m});
  const int64_t B = GENERATE(1, 3), T = GENERATE(1, 5), C = GENERATE(1, 4, 300);
  const auto va = test::rand_int<float>(C * T * B, 1, -8, 8);
  const auto vb = test::rand_int<bf16>(C, 2, -8, 8);
  const auto vc = test::rand_int<f16>(B * T, 3, -8, 8);
  const auto vm = test::rand_int<uint8_t>(B * T * C, 4, 0, 2);
  std::vector<double> want, want_mask;
  for (int64_t i = 0; i < B * T * C; ++i) {
    const int64_t k = i % C, t = i / C % T, s = i / (C * T);
    const double mask = vm[size_t(i)];
    const double sum = va[size_t((k * T + t) * B + s)] * test::to_f64(vb[size_t(k)]) +
                       test::to_f64(vc[size_t(s * T + t)]);
    want.push_back(mask != 0 ? sum : -1);
    want_mask.push_back(mask != 0);
  }
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    const DeviceArray<float> da(exec, va), out(exec, B * T * C);
    const DeviceArray<bf16> db(exec, vb);
    const DeviceArray<f16> dc(exec, vc);
    const DeviceArray<uint8_t> dm(exec, vm), mask(exec, B * T * C);
    kernels::pointwise(exec,
                       {.program = &program,
                        .inputs = {da.view({B, T, C}, {1, B, T * B}), db.view({B, T, C}, {0, 0, 1}),
                                   dc.view({B, T, C}, {T, 1, 0}), dm.view({B, T, C})},
                        .outputs = {out.view({B, T, C}), mask.view({B, T, C})}});
    CAPTURE(to_string(exec.device), B, T, C);
    CHECK(out.margins_intact());
    CHECK(mask.margins_intact());
    CHECK(test::max_error(out.download(), want) == 0);
    CHECK(test::max_error(mask.download(), want_mask) == 0);
  }
}

TEST_CASE("a chain has the bits of its ops one by one", "[kernels][pointwise]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  // The chain is y = tanh(x * s + exp(-x * x)) / (1 + |x|).
  PointwiseGraph graph;
  const int x = graph.input(dtype), s = graph.input(dtype), one = graph.constant(1);
  const auto apply = [&](PointwiseOp op, std::initializer_list<int> args) {
    return graph.apply(op, dtype, args);
  };
  const int xs = apply(PointwiseOp::kMul, {x, s}), xx = apply(PointwiseOp::kMul, {x, x});
  const int e = apply(PointwiseOp::kExp, {apply(PointwiseOp::kNeg, {xx})});
  const int t = apply(PointwiseOp::kTanh, {apply(PointwiseOp::kAdd, {xs, e})});
  const int d = apply(PointwiseOp::kAdd, {one, apply(PointwiseOp::kAbs, {x})});
  const int y = apply(PointwiseOp::kDiv, {t, d});
  const PointwiseProgram program = graph.compile("test", {y});
  CHECK(program.registers <= 6);
  const int64_t n = GENERATE(1, 511, 20000);
  kernels::dispatch_float(dtype, [&]<typename T>() {
    const auto vx = test::randn<T>(n, 1), vs = test::randn<T>(n, 2);
    for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
      const DeviceArray<T> dx(exec, vx), ds(exec, vs), dy(exec, n);
      kernels::pointwise(
          exec, {.program = &program, .inputs = {dx.view(), ds.view()}, .outputs = {dy.view()}});
      const auto step = [&](PointwiseOp op, const std::vector<std::vector<T>>& in) {
        return run_op(exec, op, in);
      };
      const std::vector<T> ones(size_t(n), test::make<T>(1));
      const auto exp_part =
          step(PointwiseOp::kExp, {step(PointwiseOp::kNeg, {step(PointwiseOp::kMul, {vx, vx})})});
      const auto sum = step(PointwiseOp::kAdd, {step(PointwiseOp::kMul, {vx, vs}), exp_part});
      const auto below = step(PointwiseOp::kAdd, {ones, step(PointwiseOp::kAbs, {vx})});
      CHECK(test::same_bits(dy.download(),
                            step(PointwiseOp::kDiv, {step(PointwiseOp::kTanh, {sum}), below})));
    }
  });
}

TEST_CASE("a graph compiles to what its outputs need", "[kernels][pointwise]") {
  PointwiseGraph graph;
  const int a = graph.input(DType::kF32), b = graph.input(DType::kF32);
  const int unused = graph.apply(PointwiseOp::kExp, DType::kF32, {b});
  const int y = graph.apply(PointwiseOp::kAdd, DType::kF32, {a, graph.constant(2)});
  const PointwiseProgram program = graph.compile("test", {y});
  CHECK(program.count == 4);  // the program's steps: constant, load, add, store
  CHECK(program.registers == 2);
  CHECK(program.loads(0));
  CHECK_FALSE(program.loads(1));
  CHECK(unused != y);
  // Inputs and constants may be outputs, and a value may be output several times.
  const PointwiseProgram copies = graph.compile("test", {a, graph.constant(2), y, y});
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    const DeviceArray<float> x(exec, std::vector<float>{1, 5});
    std::vector<DeviceArray<float>> out;
    PointwiseArgs args{.program = &copies, .inputs = {x.view()}};
    for (size_t i = 0; i < 4; ++i) {
      out.emplace_back(exec, 2);
      args.outputs[i] = out.back().view();
    }
    kernels::pointwise(exec, args);
    CHECK(out[0].download() == std::vector<float>{1, 5});
    CHECK(out[1].download() == std::vector<float>{2, 2});
    CHECK(out[2].download() == std::vector<float>{3, 7});
    CHECK(out[3].download() == std::vector<float>{3, 7});
  }
}

TEST_CASE("pointwise names what does not fit", "[kernels][pointwise]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8);
  const PointwiseProgram program = program_of(PointwiseOp::kExp, DType::kF32);
  const auto message = [&](const View& x, const View& y) {
    return test::message_of<Error>(
        [&] { kernels::pointwise(exec, {.program = &program, .inputs = {x}, .outputs = {y}}); });
  };
  CHECK(message(a.view({4}), a.view({8})) == "pointwise: input is fp32[4], expected shape [8]");
  CHECK(test::contains(message(a.view({2, 2}), a.view({2, 2}, {4, 1})), "pointwise: output is"));
  PointwiseProgram broken = program;
  broken.steps[1].to = kernels::kMaxPointwiseRegisters;
  CHECK(test::contains(
      test::message_of<InternalError>([&] {
        kernels::pointwise(
            exec, {.program = &broken, .inputs = {a.view({4})}, .outputs = {a.view({4}, {1}, 4)}});
      }),
      "outputs is not valid"));
  PointwiseGraph graph;
  std::vector<int> sum = {graph.input(DType::kF32)};
  for (int i = 0; i < kernels::kMaxPointwiseSteps; ++i) {
    sum.push_back(graph.apply(PointwiseOp::kExp, DType::kF32, {sum.back()}));
  }
  CHECK(test::message_of<ShapeError>([&] { graph.compile("fused", {sum.back()}); }) ==
        "fused: the chain has 161 steps, expected at most 160");
}

}  // namespace shale
