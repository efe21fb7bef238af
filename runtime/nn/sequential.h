#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::nn {

// A chain of layers and functions, each applied to the previous result:
//
//   nn::Sequential mlp(this, "mlp");
//   mlp.add<nn::Linear>(784, 128, Init::normal(0.02f)).add(relu).add<nn::Linear>(128, 10, init);
//   Tensor y = mlp.forward(x);
//
// A layer's name is its index, from 0, which also counts functions: "mlp.2.weight".
class Sequential : public Module {
 public:
  Sequential() = default;  // constructor of a root module
  Sequential(Module* parent, std::string name) : Module(parent, std::move(name)) {}

  // Constructs a layer M(this, its index, args...), which must have `Tensor forward(const
  // Tensor&)`.
  template <typename M, typename... Args>
  Sequential& add(Args&&... args) {
    auto layer =
        std::make_unique<M>(this, std::to_string(steps_.size()), std::forward<Args>(args)...);
    steps_.push_back([forward = layer.get()](const Tensor& x) { return forward->forward(x); });
    layers_.push_back(std::move(layer));
    return *this;
  }
  // Appends a function without parameters, such as relu.
  Sequential& add(std::function<Tensor(const Tensor&)> fn) {
    steps_.push_back(std::move(fn));
    return *this;
  }

  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      Tensor y = in;
      for (const auto& step : steps_) y = step(y);
      return y;
    });
  }
  int64_t size() const { return static_cast<int64_t>(steps_.size()); }

 private:
  std::vector<std::unique_ptr<Module>> layers_;
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

}  // namespace shale::nn
