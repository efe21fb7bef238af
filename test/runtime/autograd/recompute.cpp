// Tests that recomputation gives the bits of an ordinary backward, and keeps less memory.
#include "shale/runtime/autograd/recompute.h"

#include <cstring>
#include <functional>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using In = std::vector<Tensor>;

constexpr int64_t kRows = 6, kWidth = 8, kHidden = 32;

// Leaves of the two halves of a transformer block, with dropout.
struct Weights {
  explicit Weights(Context& context)
      : gain(random_leaf(context, {kWidth}, 1)),
        bias(random_leaf(context, {kWidth}, 2)),
        qkv(random_leaf(context, {3 * kWidth, kWidth}, 3, 0.3)),
        out(random_leaf(context, {kWidth, kWidth}, 4, 0.3)),
        w1(random_leaf(context, {kHidden, kWidth}, 5, 0.3)),
        b1(random_leaf(context, {kHidden}, 6, 0.3)),
        w2(random_leaf(context, {kWidth, kHidden}, 7, 0.3)),
        b2(random_leaf(context, {kWidth}, 8, 0.3)) {}

  Tensor forward(const Tensor& input) const {
    const auto [normed, x] = stream_layer_norm(input, {}, gain, bias);
    const Tensor attended = packed_attention(linear(normed, qkv), 2);
    const Tensor branch = dropout(linear(attended, out), 0.3f, 1, x);
    const auto [normed2, y] = stream_layer_norm(branch, {}, gain, bias);
    return dropout(ffn(normed2, w1, b1, w2, b2), 0.3f, 2, y);
  }

  In all() const { return {gain, bias, qkv, out, w1, b1, w2, b2}; }

  Tensor gain, bias, qkv, out, w1, b1, w2, b2;
};

using Run = std::function<Tensor(const Weights&, const Tensor&)>;

// Runs forward and backward, and returns the result and all gradients. The gradient of x is last.
std::vector<std::vector<float>> results(const Run& run, bool x_has_gradient = true) {
  Context context(small_context());
  const Weights weights(context);
  Tensor x = random_leaf(context, {2, kRows / 2, kWidth}, 9);
  x.set_requires_grad(x_has_gradient);
  const Tensor y = run(weights, scale(x, 1));
  // Recomputation must ignore changes of the step state between forward and backward.
  context.update_step([](StepState& state) { state.sample = 100, state.step = 7; });
  backward(y, from_host<float>(context, randn<float>(y.numel(), 10), y.shape()));
  std::vector<std::vector<float>> values = {to_host<float>(y)};
  for (const Tensor& leaf : weights.all()) values.push_back(to_host<float>(leaf.grad()));
  if (x_has_gradient) values.push_back(to_host<float>(x.grad()));
  return values;
}

void check_same(const Run& run, bool x_has_gradient = true) {
  const Run twice = [](const Weights& w, const Tensor& x) { return w.forward(w.forward(x)); };
  CHECK(results(run, x_has_gradient) == results(twice, x_has_gradient));
}

// Returns by how many bytes the memory in use grows during forward.
int64_t bytes_kept(const std::function<Tensor(const Tensor&)>& forward) {
  Context context(small_context());
  const Tensor x = random_leaf(context, {1 << 16}, 1);
  const Tensor input = scale(x, 1);
  const int64_t before = context.allocator().stats().allocated;
  const Tensor y = forward(input);
  return context.allocator().stats().allocated - before - y.bytes();
}

}  // namespace

TEST_CASE("a checkpoint gives the bits of an ordinary backward, dropout included") {
  check_same([](const Weights& w, const Tensor& x) {
    return checkpoint([&w](const Tensor& in) { return w.forward(w.forward(in)); }, x);
  });
  check_same([](const Weights& w, const Tensor& x) {
    const auto segment = [&w](const Tensor& in) { return w.forward(in); };
    return checkpoint(segment, checkpoint(segment, x));
  });
}

TEST_CASE("an input without gradient does not keep parameters from theirs") {
  check_same(
      [](const Weights& w, const Tensor& x) {
        return checkpoint([&w](const Tensor& in) { return w.forward(w.forward(in)); }, x);
      },
      /*x_has_gradient=*/false);
}

TEST_CASE("checkpoints nest") {
  check_same([](const Weights& w, const Tensor& x) {
    const auto inner = [&w](const Tensor& in) { return w.forward(in); };
    return checkpoint(
        [inner](const Tensor& in) { return checkpoint(inner, checkpoint(inner, in)); }, x);
  });
}

TEST_CASE("selective recomputation gives the bits of an ordinary backward, in checkpoints too") {
  check_same([](const Weights& w, const Tensor& x) {
    const SelectiveRecompute scope(x.context());
    return w.forward(w.forward(x));
  });
  check_same([](const Weights& w, const Tensor& x) {
    const auto segment = [&w](const Tensor& in) {
      const SelectiveRecompute scope(in.context());
      return w.forward(in);
    };
    return checkpoint(segment, checkpoint(segment, x));
  });
}

TEST_CASE("a segment has several inputs and outputs, optional and unused ones") {
  const auto gradients = [](bool again) {
    Context context(small_context());
    const Tensor a = random_leaf(context, {5}, 1), b = random_leaf(context, {5}, 2);
    const CheckpointFn fn = [](const In& in) {
      CHECK_FALSE(in[2].defined());
      const Tensor product = mul(gelu(in[0]), in[1]);
      return In{gelu(product), mul(product, in[0]), scale(in[1], 3)};
    };
    const In inputs = {scale(a, 1), b, Tensor()};
    const In outputs = again ? checkpoint(fn, inputs) : fn(inputs);
    backward(sum(mul(outputs[0], outputs[1])));
    return std::pair(to_host<float>(a.grad()), to_host<float>(b.grad()));
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("a checkpoint keeps nothing of what its ops save, and runs again once") {
  int runs = 0;
  const auto segment = [&runs](const Tensor& x) {
    ++runs;
    return gelu(gelu(gelu(x)));
  };
  // Two intermediate results; the input exists in any case.
  CHECK(bytes_kept(segment) == 2 * 4 << 16);
  CHECK(bytes_kept([&](const Tensor& x) { return checkpoint(segment, x); }) == 0);

  Context context(small_context());
  const Tensor x = random_leaf(context, {1 << 16}, 1);
  runs = 0;
  const Tensor y = sum(checkpoint(segment, x));
  const int64_t before = context.allocator().stats().allocated;
  backward(y);
  CHECK(runs == 2);
  // Only the gradient of x is new.
  CHECK(context.allocator().stats().allocated - before == x.bytes());
}

TEST_CASE("the second run ends when nothing more is wanted") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1);
  int beginnings = 0, ends = 0;
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        ++beginnings;
        const Tensor saved = gelu(in);
        const Tensor product = mul(saved, saved);
        ++ends;
        return scale(product, 2);  // scale() saves nothing for backward
      },
      x);
  backward(sum(y));
  CHECK(beginnings == 2);
  CHECK(ends == 1);
}

TEST_CASE("every op with a recipe makes the same bits again, in every dtype") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  CAPTURE(dtype_name(dtype));
  Context context(small_context());
  const Tensor x = cast(random_leaf(context, {5, 33}, 1), dtype);
  const Tensor branch = cast(random_leaf(context, {5, 33}, 2), dtype);
  const Tensor gain = cast(random_leaf(context, {33}, 3), dtype);
  const SelectiveRecompute scope(context);
  const auto check = [](const Tensor& y) {
    REQUIRE(y.impl().recipe != nullptr);
    const Tensor again = y.impl().recipe->make();
    CHECK(std::memcmp(again.data(), y.data(), size_t(y.bytes())) == 0);
    CHECK(again.data() != y.data());
  };
  check(gelu(x, Gelu::kTanh));
  check(gelu(x, Gelu::kErf));
  check(layer_norm(x, gain, gain));
  check(layer_norm(x, gain, {}));
  check(stream_layer_norm(x, branch, gain, gain).y);
  check(rms_norm(x, gain));
  check(stream_rms_norm(x, branch, gain).y);
}

TEST_CASE("tensors with recipes are computed again only while their recipe is true") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1), w = random_leaf(context, {4, 4}, 2);
  const auto gradient = [&](bool selective) {
    const Tensor input = scale(x, 1);
    const auto forward = [&](const Tensor& in) {
      Tensor y = gelu(in);
      scale_(y, 3);  // from here on, y is not gelu(in)
      return sum(linear(y, w));
    };
    backward(recompute(selective ? Recompute::kSelective : Recompute::kNone, forward, input));
    const std::vector<float> grad = to_host<float>(w.grad());
    return grad;
  };
  const std::vector<float> once = gradient(false);
  std::vector<float> twice = once;
  for (float& value : twice) value *= 2;
  CHECK(gradient(true) == twice);
}

TEST_CASE("modules run their hooks again, in pairs, and backward hooks once") {
  struct Net : Module {
    Net() : norm(this, "norm", 4, 1e-5f), linear(this, "linear", 4, 4, Init::normal(1)) {}
    Tensor forward(const Tensor& x) {
      return run(x, [this](const Tensor& in) { return linear.forward(norm.forward(in)); });
    }
    nn::LayerNorm norm;
    nn::Linear linear;
  };
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 1);
  std::string log;
  const std::pair<HookPoint, char> points[] = {{HookPoint::kBeforeForward, '('},
                                               {HookPoint::kAfterForward, ')'},
                                               {HookPoint::kBeforeBackward, '['},
                                               {HookPoint::kAfterBackward, ']'}};
  for (const auto& [point, mark] : points) {
    net.add_hook(point, [&log, &context, mark = mark] {
      log += mark;
      if (context.autograd().recomputing) log += '*';
    });
  }
  const Tensor x = random_leaf(context, {2, 4}, 1);
  backward(sum(checkpoint([&](const Tensor& in) { return net.forward(in); }, scale(x, 1))));
  CHECK(log == "()[(*)*]");
}

TEST_CASE("a segment that does not compute the same again is an error") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {2, 4}, 1), w = random_leaf(context, {4, 4}, 2);
  int run = 0;
  const auto message = [&](const std::function<Tensor(const Tensor&)>& fn) {
    run = 0;
    const Tensor y = checkpoint(fn, scale(x, 1));
    return message_of<AutogradError>([&] { backward(y, full(context, y.shape(), y.dtype(), 1)); });
  };
  const std::string shape = message([&](const Tensor& in) {
    const Tensor part = ++run == 1 ? in : scale(random_leaf(context, {3, 4}, 3), 1);
    return linear(part, w);
  });
  CHECK(contains(shape, "tensor 1 of 1 that the recomputation saves is fp32[3,4]"));
  CHECK(contains(shape, "the first run's was fp32[2,4]"));
  CHECK(contains(message([&](const Tensor& in) {
                   return cast(gelu(++run == 1 ? in : cast(in, DType::kBF16)), DType::kF32);
                 }),
                 "saves is bf16[2,4]"));
  CHECK(contains(message([&](const Tensor& in) { return ++run == 1 ? gelu(in) : scale(in, 2); }),
                 "ended without a tensor fp32[2,4]"));
}

TEST_CASE("an input changed in place before the second run is an error") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1);
  Tensor input = scale(x, 1);
  const Tensor y = sum(checkpoint([](const Tensor& in) { return gelu(in); }, input));
  scale_(input, 2);
  const std::string message = message_of<AutogradError>([&] { backward(y); });
  CHECK(contains(message, "changed in place"));
}

TEST_CASE("an error in the second run comes through, and leaves the context as it was") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1);
  int run = 0;
  const Tensor y = sum(checkpoint(
      [&](const Tensor& in) {
        if (++run == 2) throw DataError("from fn");
        return gelu(in);
      },
      scale(x, 1)));
  CHECK(message_of<DataError>([&] { backward(y); }) == "from fn");
  CHECK(context.autograd().enabled);
  CHECK_FALSE(context.autograd().recomputing);
  CHECK(context.autograd().saved_hooks.empty());
}

TEST_CASE("inputs of a checkpoint go through the hooks around it, and nothing else does") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1);
  const Tensor input = scale(x, 1);
  int packed = 0, unpacked = 0;
  Tensor y;
  {
    const SavedTensorHooksScope hooks(context, {.pack =
                                                    [&](const Tensor& t) {
                                                      ++packed;
                                                      CHECK(t.data() == input.data());
                                                      return std::make_shared<Tensor>(t);
                                                    },
                                                .unpack =
                                                    [&](const std::shared_ptr<void>& t) {
                                                      ++unpacked;
                                                      return *std::static_pointer_cast<Tensor>(t);
                                                    }});
    y = checkpoint([](const Tensor& in) { return gelu(gelu(in)); }, input);
  }
  backward(sum(y));
  CHECK(packed == 1);
  CHECK(unpacked == 1);
}

TEST_CASE("without gradients a checkpoint is a plain call") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1);
  const NoGrad no_grad(context);
  CHECK_FALSE(checkpoint([](const Tensor& in) { return gelu(in); }, x).requires_grad());
}

}  // namespace shale::test
