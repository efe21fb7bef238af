#include "shale/runtime/nn/sequential.h"

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

struct Mlp : Module {
  Mlp() : layers(this, "mlp") {
    const Init init = Init::normal(0.4f);
    layers.add<nn::Linear>(2, 16, init).add([](const Tensor& x) { return tanh(x); });
    layers.add<nn::Linear>(16, 1, init);
  }
  nn::Sequential layers;
};

}  // namespace

TEST_CASE("a Sequential runs its layers in order, and names them by their place") {
  Context context(small_context());
  Mlp mlp;
  materialize(mlp, context, DType::kF32, 1);
  std::vector<std::string> names;
  for (const Parameter* parameter : mlp.parameters()) names.push_back(parameter->full_name());
  CHECK(names ==
        std::vector<std::string>{"mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"});
  CHECK(mlp.layers.size() == 3);
  const auto value = [&](const char* name) { return mlp.find_parameter(name)->value; };
  const Tensor x = random_leaf(context, {5, 2}, 1);
  const Tensor hidden = tanh(linear(x, value("mlp.0.weight"), value("mlp.0.bias")));
  const Tensor want = linear(hidden, value("mlp.2.weight"), value("mlp.2.bias"));
  CHECK(same_bits(to_host<float>(mlp.layers.forward(x)), to_host<float>(want)));
}

TEST_CASE("an MLP of Sequential learns the exclusive or") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    Mlp mlp;
    materialize(mlp, context, DType::kF32, 1);
    const Tensor x = from_host<float>(context, std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
    const Tensor t = from_host<float>(context, std::vector<float>{0, 1, 1, 0}, {4, 1});
    float loss_value = 0;
    const int steps = options.device.type == DeviceType::kCpu ? 400 : 150;
    for (int step = 0; step < steps; ++step) {
      const Tensor loss = bce_with_logits_loss(mlp.layers.forward(x), t);
      loss_value = to_host<float>(loss)[0];
      backward(loss);
      for (Parameter* parameter : mlp.parameters()) {
        const NoGrad no_grad(context);
        // Updates the parameter, and then clears its gradient, which the next backward would add
        // to.
        Tensor gradient = parameter->value.grad(), value = parameter->value;
        add_(value, mul(gradient, -0.8f));
        scale_(gradient, 0.f);
      }
    }
    CAPTURE(to_string(options.device));
    CHECK(loss_value < (steps == 400 ? 0.1f : 0.5f));  // a guess would have a loss of 0.69
  }
}

}  // namespace shale::test
