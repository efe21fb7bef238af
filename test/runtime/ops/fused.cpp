#include "shale/runtime/ops/fused.h"

#include "shale/kernels/pointwise.h"
#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/softmax.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Tensors = std::vector<Tensor>;

// A gate that uses most ops; its inputs are x [4, 33], a row, and a column.
Tensors gate(const Tensors& in) {
  const Tensor &x = in[0], &row = in[1], &column = in[2];
  const Tensor h = tanh(add(mul(x, row), column));
  const Tensor g = sigmoid(sub(1.5f, mul(x, x)));
  const Tensor y = where(less(x, 0.f), mul(h, g), div(silu(x), add(exp(neg(abs(x))), 1.f)));
  return {clamp(y, -2.f, 2.f), maximum(softplus(h), scale(sin(x), 0.5f))};
}

struct Result {
  std::vector<std::vector<float>> values, grads;
};

std::vector<float> as_floats(const Tensor& x) {
  return to_host<float>(cast(x, DType::kF32));
}

// Runs the gate and returns the sum of its weighted results, with gradients. x is the result of an
// op; the row and the column are leaves.
Result run_gate(Context& context, DType dtype, bool is_fused) {
  const Tensor x0 = random_leaf(context, {4, 33}, 1);
  const Tensor row = cast(random_leaf(context, {33}, 2).detach(), dtype).set_requires_grad(true);
  const Tensor column =
      cast(random_leaf(context, {4, 1}, 3).detach(), dtype).set_requires_grad(true);
  const Tensors inputs = {cast(scale(x0, 1), dtype), row, column};
  const Tensors y = is_fused ? fused(gate, inputs) : gate(inputs);
  const Tensor weights = cast(random_leaf(context, {4, 33}, 4).detach(), dtype);
  const Tensor total = add(mul(y[0], weights), y[1]);
  backward(sum(cast(total, DType::kF32)));
  return {.values = {as_floats(y[0]), as_floats(y[1])},
          .grads = {as_floats(x0.grad()), as_floats(row.grad()), as_floats(column.grad())}};
}

}  // namespace

TEST_CASE("a fused chain has the bits of its ops, and so have its gradients") {
  for (const ContextOptions& options : small_contexts()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Context context(options);
      CAPTURE(to_string(options.device), dtype_name(dtype));
      const Result want = run_gate(context, dtype, false), got = run_gate(context, dtype, true);
      for (size_t i = 0; i < 2; ++i) CHECK(same_bits(got.values[i], want.values[i]));
      for (size_t i = 0; i < 3; ++i) CHECK(same_bits(got.grads[i], want.grads[i]));
    }
  }
}

TEST_CASE("a fused chain is one kernel, and its backward another, that keeps inputs alone") {
  class Calls final : public kernels::CallObserver {
   public:
    void around(const kernels::SlotCall& call) override {
      programs += call.args_of(kernels::pointwise) != nullptr;
      others += call.args_of(kernels::pointwise) == nullptr;
      call.run();
    }
    int programs = 0, others = 0;
  } calls;
  Context context(small_context());
  const Tensor x = random_leaf(context, {64}, 1), dy = random_leaf(context, {64}, 2).detach();
  const Tensor input = exp(x);
  int64_t kept = 0;
  const SavedTensorHooksScope hooks(context, {.pack =
                                                  [&](const Tensor& saved) {
                                                    kept += saved.numel();
                                                    return std::make_shared<Tensor>(saved);
                                                  },
                                              .unpack =
                                                  [](const std::shared_ptr<void>& saved) {
                                                    return *std::static_pointer_cast<Tensor>(saved);
                                                  }});
  const auto chain = [](const Tensor& in) { return mul(sigmoid(in), tanh(mul(in, in))); };
  Tensor y;
  {
    const Context::Observation observation(context, calls);
    y = fused(chain, input);
  }
  CHECK(calls.programs == 1);
  CHECK(calls.others == 0);
  CHECK(kept == 64);
  CHECK(to_host<float>(chain(input)) == to_host<float>(y));
  calls = {};
  {
    const Context::Observation observation(context, calls);
    backward(y, dy);
  }
  CHECK(calls.programs == 2);  // one program for the chain, and one for exp()
  CHECK(to_host<float>(x.grad()).size() == 64);
}

TEST_CASE("fused chains work under recomputation and without gradients") {
  const auto gradients = [](Recompute mode) {
    Context context(small_context());
    const Tensor x = random_leaf(context, {8, 8}, 1);
    const auto chain = [](const Tensor& in) {
      return fused([](const Tensor& v) { return mul(v, sigmoid(v)); }, add(in, 1.f));
    };
    backward(sum(recompute(mode, chain, x)));
    return to_host<float>(x.grad());
  };
  CHECK(same_bits(gradients(Recompute::kFull), gradients(Recompute::kNone)));
  Context context(small_context());
  const NoGrad no_grad(context);
  const Tensor x = random_leaf(context, {8}, 1);
  const Tensor y = fused([](const Tensor& v) { return relu(add(v, 1.f)); }, x);
  CHECK_FALSE(y.requires_grad());
}

TEST_CASE("results that nobody used have no gradient to give") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {1, 2});
  const Tensors y = fused(
      [](const Tensors& in) {
        return Tensors{mul(in[0], 3.f), exp(in[0])};
      },
      {x});
  backward(sum(y[0]));
  CHECK(to_host<float>(x.grad()) == std::vector<float>{3, 3});
}

TEST_CASE("what cannot be fused is an error that says why") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4, 3}, 1), row = random_leaf(context, {3}, 2);
  CHECK(message_of<ShapeError>([&] {
          fused([&](const Tensor& in) { return mul(in, exp(row)); }, x);
        }) == "fused: mul gives [4,3], expected the shape of the chain's first result, [3]");
  CHECK(message_of<AutogradError>([&] { fused([](const Tensor& in) { return in; }, x); }) ==
        "fused: the function returned fp32[4,3], expected results of elementwise ops made inside "
        "of it");
  CHECK(contains(message_of<InternalError>(
                     [&] { fused([](const Tensor& in) { return softmax(exp(in)); }, x); }),
                 "inside fused() only elementwise ops can use results of ops"));
  // After an error, the context still works.
  CHECK(to_host<float>(exp(x)).size() == 12);
  CHECK(message_of<ShapeError>([&] {
          fused(
              [](const Tensor& in) {
                Tensor y = in;
                for (int i = 0; i < 200; ++i) y = sin(y);
                return y;
              },
              x);
        }) == "fused: the chain has 161 steps, expected at most 160");
}

}  // namespace shale::test
