#include "shale/runtime/autograd/tape.h"

#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

float only(const Tensor& x) {
  return to_host<float>(x).front();
}

}  // namespace

TEST_CASE("a chain of 100,000 ops goes forward, backward and away without deep recursion") {
  Context context(small_context(1));
  const Tensor x = leaf(context, {1}, {2});
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = add(y, x);
  backward(y);
  CHECK(only(x.grad()) == 100001);
  Tensor unused = x;
  for (int i = 0; i < 100000; ++i) unused = add(unused, x);
  unused = Tensor();  // frees a graph that no backward has used
}

TEST_CASE("gradients of a tensor that is used several times add up") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {3, -1});
  const Tensor a = scale(x, 2);
  backward(sum(add(mul(a, x), add(a, a))));  // y = 2x² + 4x
  CHECK(to_host<float>(x.grad()) == std::vector<float>{16, 0});
}

TEST_CASE("a graph over two contexts is refused where it would begin") {
  Context one(small_context(1)), two(small_context(1));
  const Tensor x = leaf(one, {1}, {1}), y = leaf(two, {1}, {2});
  const std::string message = message_of<AutogradError>([&] { mul(x, y); });
  CHECK(contains(message, "another context"));
  CHECK(contains(message, "detach()"));
  CHECK(only(mul(x, y.detach())) == 2);
}

TEST_CASE("a shared gradient is not changed by adding to it") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {1}), y = leaf(context, {1}, {1});
  // In backward, add() passes the same gradient tensor to both inputs. x then gets a second
  // gradient, which must not change y's.
  const Tensor a = scale(x, 1), b = scale(y, 1);
  backward(add(add(a, b), scale(a, 5)));
  CHECK(only(x.grad()) == 6);
  CHECK(only(y.grad()) == 1);
}

TEST_CASE("leaf gradients accumulate over backwards until they are reset") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {1});
  backward(scale(x, 2));
  backward(scale(x, 3));
  CHECK(only(x.grad()) == 5);
  leaf_state(x).has_value = false;
  CHECK_FALSE(x.grad().defined());
  backward(scale(x, 4));
  CHECK(only(x.grad()) == 4);
}

TEST_CASE("a second backward through one graph is an error") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {1});
  const Tensor y = scale(x, 2);
  const Tensor z = scale(y, 2);
  backward(z);
  CHECK(contains(message_of<AutogradError>([&] { backward(z); }), "earlier backward"));
  CHECK(contains(message_of<AutogradError>([&] { backward(scale(y, 3)); }), "scale"));
}

TEST_CASE("what backward cannot start from is an error") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {1, 2});
  CHECK(contains(message_of<AutogradError>([&] { backward(scale(x, 2)); }), "scalar"));
  const Tensor constant = zeros(context, {1}, DType::kF32);
  CHECK(contains(message_of<AutogradError>([&] { backward(scale(constant, 2)); }),
                 "does not depend"));
  CHECK_THROWS_AS(backward(scale(x, 2), zeros(context, {3}, DType::kF32)), ShapeError);
  CHECK_THROWS_AS(backward(Tensor()), ShapeError);
  const Tensor square = leaf(context, {2, 2}, {1, 2, 3, 4});
  const Tensor strided = transpose(zeros(context, {2, 2}, DType::kF32), 0, 1);
  CHECK(contains(message_of<ShapeError>([&] { backward(linear(square, square), strided); }),
                 "contiguous"));
}

TEST_CASE("a tensor changed in place after it was saved is an error, not a wrong gradient") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {1, 2});
  Tensor y = scale(x, 2);
  const Tensor z = sum(mul(y, y));
  scale_(y, 2);
  const std::string message = message_of<AutogradError>([&] { backward(z); });
  CHECK(contains(message, "mul"));
  CHECK(contains(message, "changed in place"));
}

TEST_CASE("in-place ops refuse leaves and views while gradients are recorded") {
  Context context(small_context());
  Tensor x = leaf(context, {4}, {1, 2, 3, 4});
  CHECK(contains(message_of<AutogradError>([&] { scale_(x, 2); }), "leaf"));
  Tensor view = reshape(scale(x, 1), {2, 2});
  CHECK(contains(message_of<AutogradError>([&] { scale_(view, 2); }), "view"));
  const NoGrad no_grad(context);
  scale_(x, 2);
  CHECK(to_host<float>(x) == std::vector<float>{2, 4, 6, 8});
}

TEST_CASE("in-place ops refuse a tensor that has a view, however the view was made") {
  Context context(small_context());
  const Tensor x = leaf(context, {4}, {1, 2, 3, 4});
  Tensor base = scale(x, 1);
  const Tensor view = reshape(base, {2, 2});
  CHECK(contains(message_of<AutogradError>([&] { add_(base, x); }), "view"));
  const Tensor gain = leaf(context, {4}, {1, 1, 1, 1});
  Tensor stream = stream_layer_norm(scale(x, 1), {}, gain, {}).stream;
  CHECK(contains(message_of<AutogradError>([&] { scale_(stream, 2); }), "view"));
  Tensor logits = leaf(context, {1, 4}, {1, 2, 3, 4});
  const std::vector<int32_t> target = {1};
  CHECK(contains(message_of<AutogradError>(
                     [&] { cross_entropy_(logits, from_host<int32_t>(context, target, {1}), 4); }),
                 "leaf"));
}

TEST_CASE("nothing is recorded under NoGrad, and the state before it comes back") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {1});
  {
    const NoGrad outer(context);
    { const NoGrad inner(context); }
    CHECK_FALSE(scale(x, 2).requires_grad());
  }
  CHECK(scale(x, 2).requires_grad());
}

TEST_CASE("ready hooks fire once per backward, after the last gradient of the leaf") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {1}), y = leaf(context, {1}, {1});
  std::vector<std::string> log;
  leaf_state(x).ready_hooks.push_back([&] { log.push_back(cat("x=", only(x.grad()))); });
  leaf_state(y).ready_hooks.push_back([&] { log.push_back(cat("y=", only(y.grad()))); });
  // Backward first reaches the mul, which uses y, and last the two scales, which use x.
  backward(mul(add(scale(x, 2), scale(x, 3)), y));
  CHECK(log == std::vector<std::string>{"y=5", "x=5"});
}

TEST_CASE("saved tensors go through the innermost hooks of their context") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {1, 2});
  std::vector<std::string> log;
  const auto hooks = [&](const std::string& name) {
    return SavedTensorHooks{.pack =
                                [&log, name](const Tensor& t) {
                                  log.push_back("pack " + name);
                                  return std::make_shared<Tensor>(scale(t, 10));
                                },
                            .unpack =
                                [&log, name](const std::shared_ptr<void>& packed) {
                                  log.push_back("unpack " + name);
                                  return *std::static_pointer_cast<Tensor>(packed);
                                }};
  };
  Tensor y;
  {
    const SavedTensorHooksScope outer(context, hooks("outer"));
    const Tensor a = scale(x, 1);
    const SavedTensorHooksScope inner(context, hooks("inner"));
    // mul saves both operands; when unpacked, `a` is ten times too large.
    y = sum(mul(a, scale(x, 1)));
  }
  backward(y);
  CHECK(log ==
        std::vector<std::string>{"pack inner", "pack inner", "unpack inner", "unpack inner"});
  CHECK(to_host<float>(x.grad()) == std::vector<float>{20, 40});
}

TEST_CASE("saved tensors are released by backward") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {1 << 16}, 1);
  const int64_t before = context.allocator().stats().allocated;
  const Tensor loss = sum(gelu(gelu(x)));
  CHECK(context.allocator().stats().allocated >= before + (1 << 16) * 4);
  backward(loss);
  const int64_t grad_bytes = (1 << 16) * 4;
  CHECK(context.allocator().stats().allocated <= before + grad_bytes + 4096);
}

TEST_CASE("an op that answers with the wrong number of gradients is named") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {1});
  Tensor y = x.detach();
  record("broken", {x}, {&y}, [](BackwardArgs&) { return Grads(); });
  CHECK(contains(message_of<AutogradError>([&] { backward(y); }), "broken"));
}

TEST_CASE("an output that no gradient reaches is undefined in backward") {
  Context context(small_context());
  const Tensor x = leaf(context, {1}, {3});
  Tensor a = scale(x.detach(), 1), b = scale(x.detach(), 1);
  bool b_missing = false;
  record("two", {x}, {&a, &b}, [&](BackwardArgs& args) {
    b_missing = !args.dy(1).defined();
    return Grads{args.dy(0)};
  });
  backward(scale(a, 2));
  CHECK(b_missing);
  CHECK(only(x.grad()) == 2);
}

}  // namespace shale::test
