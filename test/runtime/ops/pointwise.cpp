#include "shale/runtime/ops/pointwise.h"

#include <cmath>

#include "shale/runtime/amp/autocast.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Values = std::vector<Vec>;

// Returns the index of the element of a tensor of shape `from` that is broadcast to element i of
// shape `to`.
size_t source_of(size_t i, const Shape& to, const Shape& from) {
  size_t at = 0, factor = 1;
  for (int d = 1; d <= to.ndim(); ++d) {
    const size_t index = i % size_t(to.at(-d));
    i /= size_t(to.at(-d));
    if (d > from.ndim()) continue;
    if (from.at(-d) > 1) at += index * factor;
    factor *= size_t(from.at(-d));
  }
  return at;
}

OpCase unary_case(const char* name, Tensor (*op)(const Tensor&), double (*fn)(double)) {
  return {.name = name,
          .inputs = {{3, 37}},
          .output = {3, 37},
          .op = [op](const std::vector<Tensor>& x) { return op(x[0]); },
          .reference =
              [fn](const Values& x) {
                Vec y;
                for (const double value : x[0]) y.push_back(fn(value));
                return y;
              }};
}

using BinaryOp = Tensor (*)(const Tensor&, const Tensor&);
OpCase binary_case(const char* name, BinaryOp op, double (*fn)(double, double), const Shape& a,
                   const Shape& b, const Shape& y) {
  return {.name = cat(name, " ", a, " ", b),
          .inputs = {a, b},
          .output = y,
          .op = [op](const std::vector<Tensor>& x) { return op(x[0], x[1]); },
          .reference =
              [=](const Values& x) {
                Vec result;
                for (size_t i = 0; i < size_t(y.numel()); ++i) {
                  result.push_back(fn(x[0][source_of(i, y, a)], x[1][source_of(i, y, b)]));
                }
                return result;
              }};
}

// Makes denominators and arguments of logarithms that are not near 0.
Tensor positive(const Tensor& x) {
  return add(mul(x, x), 0.5f);
}
double positive(double x) {
  return x * x + 0.5;
}

}  // namespace

TEST_CASE("elementwise ops and their gradients agree with f64") {
  expect_op(unary_case("neg", neg, [](double x) { return -x; }));
  expect_op(unary_case("abs", abs, [](double x) { return std::abs(x); }));
  expect_op(unary_case("exp", exp, [](double x) { return std::exp(x); }));
  expect_op(unary_case("relu", relu, [](double x) { return std::max(x, 0.0); }));
  expect_op(unary_case("sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }));
  expect_op(unary_case("tanh", tanh, [](double x) { return std::tanh(x); }));
  expect_op(unary_case("silu", silu, [](double x) { return x / (1 + std::exp(-x)); }));
  expect_op(unary_case("softplus", softplus, [](double x) { return std::log1p(std::exp(x)); }));
  expect_op(unary_case("sin", sin, [](double x) { return std::sin(x); }));
  expect_op(unary_case("cos", cos, [](double x) { return std::cos(x); }));
  // Each op of a chain rounds its result.
  expect_op(unary_case(
                "log", [](const Tensor& x) { return log(positive(x)); },
                [](double x) { return std::log(positive(x)); }),
            4e-6, 8);
  expect_op(unary_case(
                "sqrt", [](const Tensor& x) { return sqrt(positive(x)); },
                [](double x) { return std::sqrt(positive(x)); }),
            4e-6, 8);
  expect_op(unary_case(
                "rsqrt", [](const Tensor& x) { return rsqrt(positive(x)); },
                [](double x) { return 1 / std::sqrt(positive(x)); }),
            4e-6, 8);
  expect_op(unary_case(
                "pow", [](const Tensor& x) { return pow(positive(x), 1.7f); },
                [](double x) { return std::pow(positive(x), double(1.7f)); }),
            2e-5, 8);
}

TEST_CASE("elementwise ops with numbers, and their gradients, agree with f64") {
  expect_op(unary_case(
      "add", [](const Tensor& x) { return add(x, 1.5f); }, [](double x) { return x + 1.5; }));
  expect_op(unary_case(
      "sub", [](const Tensor& x) { return sub(x, 1.5f); }, [](double x) { return x - 1.5; }));
  expect_op(unary_case(
      "sub", [](const Tensor& x) { return sub(1.5f, x); }, [](double x) { return 1.5 - x; }));
  expect_op(unary_case(
      "mul", [](const Tensor& x) { return mul(x, 1.5f); }, [](double x) { return x * 1.5; }));
  expect_op(unary_case(
      "div", [](const Tensor& x) { return div(x, 1.5f); }, [](double x) { return x / 1.5; }));
  expect_op(unary_case(
                "div", [](const Tensor& x) { return div(1.5f, positive(x)); },
                [](double x) { return 1.5 / positive(x); }),
            4e-6, 8);
  expect_op(unary_case(
      "maximum", [](const Tensor& x) { return maximum(x, 0.3f); },
      [](double x) { return std::max(x, double(0.3f)); }));
  expect_op(unary_case(
      "minimum", [](const Tensor& x) { return minimum(x, 0.3f); },
      [](double x) { return std::min(x, double(0.3f)); }));
  expect_op(unary_case(
      "clamp", [](const Tensor& x) { return clamp(x, -0.75f, 0.25f); },
      [](double x) { return std::min(std::max(x, -0.75), 0.25); }));
  for (const float p : {2.f, 3.f}) {
    expect_op({.name = cat("pow ", p),
               .inputs = {{40}},
               .output = {40},
               .op = [p](const std::vector<Tensor>& x) { return pow(x[0], p); },
               .reference =
                   [p](const Values& x) {
                     Vec y;
                     for (const double value : x[0]) y.push_back(std::pow(value, p));
                     return y;
                   }},
              2e-5);
  }
}

TEST_CASE("elementwise ops of two tensors broadcast, and add up their gradients") {
  struct Shapes {
    Shape a, b, y;
  };
  const Shapes shapes = GENERATE(
      Shapes{{2, 3, 5}, {2, 3, 5}, {2, 3, 5}}, Shapes{{2, 3, 5}, {5}, {2, 3, 5}},
      Shapes{{2, 3, 5}, {3, 1}, {2, 3, 5}}, Shapes{{2, 1, 5}, {3, 1}, {2, 3, 5}},
      Shapes{{1}, {4}, {4}}, Shapes{{4}, {1, 1}, {1, 4}}, Shapes{{}, {3, 2}, {3, 2}},
      Shapes{{2, 1, 3, 1, 2, 1}, {2, 1, 3, 1, 2}, {2, 2, 3, 3, 2, 2}}, Shapes{{0, 3}, {3}, {0, 3}});
  const auto expect = [&](const char* name, BinaryOp op, double (*fn)(double, double)) {
    expect_op(binary_case(name, op, fn, shapes.a, shapes.b, shapes.y), 1e-5, 8);
  };
  expect("add", add, [](double a, double b) { return a + b; });
  expect("sub", sub, [](double a, double b) { return a - b; });
  expect("mul", mul, [](double a, double b) { return a * b; });
  expect("maximum", maximum, [](double a, double b) { return std::max(a, b); });
  expect("minimum", minimum, [](double a, double b) { return std::min(a, b); });
  expect(
      "div", [](const Tensor& a, const Tensor& b) { return div(a, positive(b)); },
      [](double a, double b) { return a / positive(b); });
}

TEST_CASE("elementwise ops take tensors of any strides") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor x = random_leaf(context, {4, 6}, 1), row = random_leaf(context, {4}, 2);
    const Tensor y = mul(transpose(x, 0, 1), row);
    const Tensor want = transpose(mul(x, reshape(row, {4, 1})), 0, 1);
    CHECK(same_bits(to_host<float>(y), to_host<float>(contiguous(want))));
    const Tensor part = exp(slice(x, 1, 2, 5));
    CHECK(same_bits(to_host<float>(part), to_host<float>(contiguous(slice(exp(x), 1, 2, 5)))));
    backward(sum(y));
    CHECK(x.grad().shape() == x.shape());
    const auto rows = to_host<float>(row);
    CHECK(to_host<float>(x.grad())[6] == rows[1]);
  }
}

TEST_CASE("where and comparisons choose, and pass gradients to what was chosen") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor a = leaf(context, {2, 2}, {1, -2, 3, 4}), b = leaf(context, {2}, {2, -2});
    CHECK(to_host<uint8_t>(less(a, b)) == std::vector<uint8_t>{1, 0, 0, 0});
    CHECK(to_host<uint8_t>(less_equal(a, b)) == std::vector<uint8_t>{1, 1, 0, 0});
    CHECK(to_host<uint8_t>(equal(a, b)) == std::vector<uint8_t>{0, 1, 0, 0});
    CHECK(to_host<uint8_t>(less(a, 2.f)) == std::vector<uint8_t>{1, 1, 0, 0});
    CHECK_FALSE(less(a, b).requires_grad());
    const Tensor y = where(less(a, b), a, b);
    CHECK(to_host<float>(y) == std::vector<float>{1, -2, 2, -2});
    backward(sum(mul(y, from_host<float>(context, std::vector<float>{1, 2, 4, 8}, {2, 2}))));
    CHECK(to_host<float>(a.grad()) == std::vector<float>{1, 0, 0, 0});
    CHECK(to_host<float>(b.grad()) == std::vector<float>{4, 10});
    const Tensor mask = from_host<uint8_t>(context, std::vector<uint8_t>{1, 0}, {2, 1});
    CHECK(to_host<float>(where(mask, a, -INFINITY)) ==
          std::vector<float>{1, -2, -INFINITY, -INFINITY});
    CHECK(to_host<float>(where(mask, 0.f, a)) == std::vector<float>{0, 0, 3, 4});
  }
}

TEST_CASE("equal arguments of maximum share its gradient") {
  Context context(small_context());
  const Tensor a = leaf(context, {3}, {1, 2, 3}), b = leaf(context, {3}, {1, 3, 2});
  backward(sum(maximum(a, b)));
  CHECK(to_host<float>(a.grad()) == std::vector<float>{0.5f, 0, 1});
  CHECK(to_host<float>(b.grad()) == std::vector<float>{0.5f, 1, 0});
}

TEST_CASE("add and mul over one shape have the bits of the broadcasting kernel") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Tensor a = cast(random_leaf(context, {5, 33}, 1), dtype);
      const Tensor b = cast(random_leaf(context, {5, 33}, 2), dtype);
      const Tensor b2 = transpose(contiguous(transpose(b, 0, 1)), 0, 1);  // b2 is not contiguous
      const auto bits = [](const Tensor& x) { return to_host<float>(cast(x, DType::kF32)); };
      CHECK(same_bits(bits(add(a, b)), bits(add(a, b2))));
      CHECK(same_bits(bits(mul(a, b)), bits(mul(a, b2))));
    }
  }
}

TEST_CASE("ops of two dtypes have the first's, and the wider in a region of autocast") {
  Context context(small_context());
  const Tensor a = cast(random_leaf(context, {4}, 1), DType::kBF16),
               b = random_leaf(context, {4}, 2);
  CHECK(sub(a, b).dtype() == DType::kBF16);
  CHECK(sub(b, a).dtype() == DType::kF32);
  const amp::Autocast region(context, DType::kBF16);
  CHECK(sub(a, b).dtype() == DType::kF32);
  CHECK(exp(a).dtype() == DType::kBF16);
}

TEST_CASE("what backward keeps of an elementwise op is one tensor") {
  Context context(small_context());
  const auto kept_by = [&](auto&& op) {
    int64_t kept = 0;
    const SavedTensorHooksScope hooks(context, {.pack =
                                                    [&](const Tensor& x) {
                                                      kept += x.numel();
                                                      return std::make_shared<Tensor>(x);
                                                    },
                                                .unpack =
                                                    [](const std::shared_ptr<void>& x) {
                                                      return *std::static_pointer_cast<Tensor>(x);
                                                    }});
    const Tensor x = exp(random_leaf(context, {8}, 1));
    kept = 0;
    backward(sum(op(x)));
    return kept;
  };
  CHECK(kept_by([](const Tensor& x) { return tanh(x); }) == 8);
  CHECK(kept_by([](const Tensor& x) { return relu(x); }) == 8);
  CHECK(kept_by([](const Tensor& x) { return silu(x); }) == 8);
  CHECK(kept_by([](const Tensor& x) { return add(x, 1.f); }) == 0);
}

TEST_CASE("elementwise ops name shapes that do not broadcast") {
  Context context(small_context());
  const Tensor a = random_leaf(context, {2, 3}, 1), b = random_leaf(context, {2}, 2);
  const auto error = [](auto&& call) { return message_of<ShapeError>(call); };
  const std::string wanted = "expected in each dimension equal sizes, or one size of 1";
  CHECK(error([&] { add(a, b); }) == "add: b is [2], a is [2,3], " + wanted);
  CHECK(error([&] { div(a, b); }) == "div: b is [2], a is [2,3], " + wanted);
  CHECK(error([&] { maximum(a, Tensor()); }) == "maximum: b is undefined, expected a tensor");
  CHECK(error([&] { clamp(a, 2, 1); }) == "clamp: low is 2, expected at most high, 1");
}

TEST_CASE("masks and images count as numbers, and keep the history of what they meet") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor x = leaf(context, {4}, {1, 5, 2, 7});
    const Tensor mask = less(x, 5.f);
    REQUIRE(mask.dtype() == DType::kU8);
    for (const Tensor& y : {mul(mask, x), mul(x, mask), where(mask, x, 0.f)}) {
      CHECK(y.dtype() == DType::kF32);
      CHECK(to_host<float>(y) == std::vector<float>{1, 0, 2, 0});
    }
    backward(sum(mul(mask, x)));
    CHECK(to_host<float>(x.grad()) == std::vector<float>{1, 0, 1, 0});

    const Tensor image = from_host<uint8_t>(context, std::vector<uint8_t>{0, 1, 128, 255}, {4});
    using Floats = std::vector<float>;
    CHECK(to_host<float>(mul(image, 0.5f)) == Floats{0, 0.5f, 64, 127.5f});
    CHECK(to_host<float>(scale(image, 0.5f)) == Floats{0, 0.5f, 64, 127.5f});
    CHECK(to_host<float>(div(1.f, add(image, image)))[3] == 1 / 510.f);
    CHECK(to_host<float>(sub(1.f, image)) == Floats{1, 0, -127, -254});
    CHECK(to_host<float>(neg(image)) == Floats{0, -1, -128, -255});
    CHECK(to_host<float>(pow(image, 2)) == Floats{0, 1, 16384, 65025});
    CHECK(to_host<float>(clamp(image, 0.5f, 200)) == Floats{0.5f, 1, 128, 200});
    CHECK(to_host<float>(maximum(image, 1.5f)) == Floats{1.5f, 1.5f, 128, 255});
    CHECK(to_host<float>(where(mask, image, 0.5f)) == Floats{0, 0.5f, 128, 0.5f});
    CHECK(add(image, cast(x, DType::kBF16)).dtype() == DType::kBF16);
  }
}

TEST_CASE("tensors of two devices do not meet in an op") {
  const std::vector<ContextOptions> contexts = small_contexts();
  if (contexts.size() < 2) return;
  Context host(contexts[0]), device(contexts[1]);
  const Tensor here = leaf(host, {2, 2}, {1, 2, 3, 4}), there = leaf(device, {2, 2}, {1, 2, 3, 4});
  const auto refused = [](const std::function<void()>& op) {
    const std::string message = message_of<InternalError>(op);
    return contains(message, "is on cpu") && contains(message, "on emu");
  };
  CHECK(refused([&] { add(there, here); }));
  CHECK(refused([&] { mul(there, here); }));
  CHECK(refused([&] { sub(there, here); }));
  CHECK(refused([&] { where(less(there, 2.f), there, here); }));
  CHECK(refused([&] { matmul(there, here); }));
  CHECK(refused([&] { linear(there, here); }));
}

}  // namespace shale::test
