// Tensors and gradients: a function of two matrices, its gradient by backward(), and by finite
// differences. One process, no ranks.
//
// Run: tensors [cpu|emu|cuda]
#include <shale/shale.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

using shale::Tensor;

// mean((gelu(x wᵀ))²), a scalar. x: [4, 3], w: [2, 3].
Tensor function(const Tensor& x, const Tensor& w) {
  const Tensor y = gelu(linear(x, w));
  return mean(mul(y, y));
}

std::vector<float> values(int64_t count, float first) {
  std::vector<float> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(std::sin(first + 0.7f * float(i)));
  return list;
}

shale::Device device_of(std::string_view name) {
  using shale::DeviceType;
  if (name == "cpu") return {};
  if (name == "emu") return {.type = DeviceType::kEmu, .arch = 90};
  if (name == "cuda") return {.type = DeviceType::kCuda};
  throw shale::ConfigError("expected cpu, emu or cuda, found " + std::string(name));
}

// Returns true if the gradient of w agrees with central differences.
bool agrees(shale::Context& context, const Tensor& x, std::vector<float> w,
            const std::vector<float>& gradient) {
  const shale::NoGrad no_grad(context);  // records nothing for backward
  constexpr float kStep = 1e-2f;
  bool all = true;
  for (size_t i = 0; i < w.size(); ++i) {
    const float middle = w[i];
    const auto at = [&](float value) {
      w[i] = value;
      return to_host<float>(function(x, shale::from_host<float>(context, w, {2, 3}))).front();
    };
    const float difference = (at(middle + kStep) - at(middle - kStep)) / (2 * kStep);
    w[i] = middle;
    std::printf("d/dw[%zu]: %8.5f, by differences %8.5f\n", i, double(gradient[i]),
                double(difference));
    // The difference is wrong by about the square of the step, and by the rounding of both values
    // to f32.
    all = all && std::abs(gradient[i] - difference) < 1e-3f;
  }
  return all;
}

int run(std::string_view device) {
  shale::Context context({.device = device_of(device)});
  const std::vector<float> weights = values(6, 0.3f);
  const Tensor x = shale::from_host<float>(context, values(12, 1), {4, 3});
  Tensor w = shale::from_host<float>(context, weights, {2, 3});
  w.set_requires_grad(true);

  const Tensor loss = function(x, w);
  std::printf("%s: loss %s = %.6f\n", to_string(context.device()).c_str(), to_string(loss).c_str(),
              double(to_host<float>(loss).front()));
  backward(loss);
  return agrees(context, x, weights, to_host<float>(w.grad())) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "cpu");
  } catch (const shale::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
