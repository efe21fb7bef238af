#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Floats = std::vector<float>;
using Vec = std::vector<double>;

}  // namespace

TEST_CASE("a copy into a slice, a transposed and a reshaped view agrees with f64") {
  expect_op({.name = "copy_ into columns",
             .inputs = {{3, 4}, {3, 2}},
             .output = {3, 4},
             .op =
                 [](const auto& x) {
                   const Tensor y = scale(x[0], 2);
                   copy_(slice(y, 1, 1, 3), x[1]);
                   return mul(y, y);
                 },
             .reference =
                 [](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 12; ++i) {
                     const size_t c = i % 4;
                     const double v = c == 1 || c == 2 ? x[1][i / 4 * 2 + c - 1] : 2 * x[0][i];
                     y.push_back(v * v);
                   }
                   return y;
                 }});
  expect_op({.name = "copy_ into a slice of a transposed view",
             .inputs = {{2, 3}, {1, 2}},
             .output = {2, 3},
             .op =
                 [](const auto& x) {
                   const Tensor y = scale(x[0], 1);
                   copy_(slice(transpose(y, 0, 1), 0, 2, 3), x[1]);
                   return scale(y, 3);
                 },
             .reference =
                 [](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 6; ++i) {
                     y.push_back(3 * (i % 3 == 2 ? x[1][i / 3] : x[0][i]));
                   }
                   return y;
                 }});
  expect_op({.name = "two copies, the second over a part of the first",
             .inputs = {{2}, {1}},
             .output = {3},
             .op =
                 [](const auto& x) {
                   const Tensor y = zeros(x[0].context(), {3}, x[0].dtype());
                   copy_(slice(y, 0, 0, 2), x[0]);
                   copy_(slice(y, 0, 1, 2), x[1]);
                   return mul(y, y);
                 },
             .reference =
                 [](const std::vector<Vec>& x) {
                   return Vec{x[0][0] * x[0][0], x[1][0] * x[1][0], 0};
                 }});
}

TEST_CASE("views made before a copy have the gradient of what they show afterwards") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {1, 2}), w = leaf(context, {4}, {1, 1, 1, 1});
  const Tensor y = scale(w, 5);
  const Tensor target = slice(y, 0, 1, 3), other = slice(y, 0, 2, 4);
  const Tensor fresh = zeros(context, {3}, DType::kF32), of_fresh = slice(fresh, 0, 0, 2);
  CHECK_FALSE(of_fresh.requires_grad());
  copy_(target, x);
  copy_(of_fresh, x);
  CHECK(fresh.requires_grad());
  CHECK(of_fresh.requires_grad());
  CHECK(to_host<float>(other) == Floats{2, 5});
  backward(sum(mul(other, other)) + sum(target * 10) + sum(of_fresh * 100));
  CHECK(to_host<float>(x.grad()) == Floats{110, 114});
  CHECK(to_host<float>(w.grad()) == Floats{0, 0, 0, 50});
}

TEST_CASE("a copy into a strided tensor of no base gives it a history of its own") {
  Context context(small_context());
  const Tensor x = leaf(context, {2, 1}, {1, 2});
  const Tensor y = zeros(context, {2, 3}, DType::kF32);
  const Tensor column = slice(y, 1, 2, 3).detach();
  copy_(column, x);
  CHECK(to_host<float>(y) == Floats{0, 0, 1, 0, 0, 2});
  CHECK_FALSE(y.requires_grad());
  backward(sum(contiguous(column) * 5));
  CHECK(to_host<float>(x.grad()) == Floats{5, 5});
}

TEST_CASE("a copy over a tensor that backward needs is an error, as over a leaf") {
  Context context(small_context());
  const Tensor x = leaf(context, {4}, {1, 2, 3, 4}), one = leaf(context, {1}, {9});
  const Tensor y = scale(x, 1), z = sum(mul(y, y));
  copy_(slice(y, 0, 0, 1), one);
  CHECK(contains(message_of<AutogradError>([&] { backward(z); }), "changed in place"));
  CHECK(contains(message_of<AutogradError>([&] { copy_(slice(x, 0, 0, 1), one); }), "leaf"));
  CHECK(contains(message_of<AutogradError>([&] { copy_(x, x); }), "leaf"));
  CHECK(contains(message_of<ShapeError>([&] { copy_(slice(y, 0, 0, 2), one); }), "copy_: x is"));
  const NoGrad no_grad(context);
  copy_(slice(x, 0, 0, 1), one);
  CHECK(to_host<float>(x) == Floats{9, 2, 3, 4});
}

TEST_CASE("a copy into memory with a user that would miss it is an error") {
  Context context(small_context());
  const Tensor y = scale(random_leaf(context, {2, 2}, 1), 1), one = leaf(context, {1, 2}, {1, 1});
  const Tensor kept = y.recorded_alias(y.shape(), y.strides());
  CHECK(contains(message_of<AutogradError>([&] { copy_(slice(y, 0, 0, 1), one); }),
                 "is also used elsewhere"));
}

TEST_CASE("to() moves values to another context and gradients back") {
  for (const ContextOptions& options : small_contexts()) {
    CAPTURE(to_string(options.device));
    Context device(options), host(small_context(1));
    const Tensor x = leaf(device, {2, 2}, {1, 2, 3, 4}), b = leaf(host, {2, 2}, {1, 1, 2, 2});
    const Tensor on_host = to(transpose(scale(x, 2), 0, 1), host);  // the values 2 6 4 8
    CHECK(&on_host.context() == &host);
    CHECK(on_host.contiguous());
    CHECK(&to(x, device).context() == &device);
    bool records = true;
    Tensor watched = scale(on_host.detach(), 1);
    record("watched", {on_host}, {&watched}, [&records](BackwardArgs& args) {
      records = args.dy().context().autograd().enabled;
      return Grads{args.dy()};
    });
    const Tensor back = to(mul(watched, b), device);
    backward(sum(mul(back, x)));  // backward of the sum of 2 x^T b x, elementwise
    CHECK(to_host<float>(back) == Floats{2, 6, 8, 16});
    CHECK(to_host<float>(x.grad()) == Floats{4, 18, 12, 32});
    CHECK(to_host<float>(b.grad()) == Floats{2, 12, 12, 32});
    CHECK_FALSE(records);  // backward records nothing in either context
    // The loss may belong to another context than x.
    backward(sum(to(x, host)));
    CHECK(to_host<float>(x.grad()) == Floats{5, 19, 13, 33});
    CHECK(host.autograd().enabled);
    const NoGrad no_grad(host);
    CHECK_FALSE(to(x, host).requires_grad());
  }
}

TEST_CASE("a graph over two contexts goes back in order, however often it changes sides") {
  Context one(small_context(1)), two(small_context(1));
  for (int i = 0; i < 50; ++i)
    scale(leaf(one, {1}, {1}), 1);  // so that node numbers of `one` are far above those of `two`
  const Tensor x = leaf(one, {1}, {1});
  Tensor y = x;
  for (int i = 0; i < 6; ++i) {
    Context& next = i % 2 == 0 ? two : one;
    const Tensor z = to(y, next);
    y = add(mul(z, z), z);  // uses z twice
  }
  backward(y);
  double value = 1, slope = 1;
  for (int i = 0; i < 6; ++i) {
    slope *= 2 * value + 1;
    value = value * value + value;
  }
  CHECK(to_host<float>(x.grad()).front() == Approx(slope));
}

}  // namespace shale::test
