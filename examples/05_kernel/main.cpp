// A custom op with custom kernels for the CPU and for GPUs: soft shrinkage, which Shale does not
// have. The GPU kernel, soft_shrink.cu, runs on the emulated GPU with its race detector, and on a
// real GPU if there is one and Shale is built for it.
//
// Run: kernel
#include <shale/autograd.h>
#include <shale/base.h>
#include <shale/ops.h>
#include <shale/tensor.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "soft_shrink.h"

namespace {

using shale::Tensor;

struct Result {
  std::vector<float> y, dx;
};

// 1000 elements, so that the last thread block of the GPU kernels is not full.
std::vector<float> inputs() {
  std::vector<float> x;
  for (int i = 0; i < 1000; ++i) x.push_back(std::sin(0.37f * float(i)));
  return x;
}

// Computes y = soft_shrink(x, 0.5), and the gradient of the sum of squares of y, which is 2 y where
// |x| > 0.5.
Result compute(const shale::Device& device) {
  shale::Context context({.device = device});
  Tensor x = shale::from_host<float>(context, inputs(), {10, 100});
  x.set_requires_grad(true);
  const Tensor y = example::soft_shrink(x, 0.5f);
  backward(sum(mul(y, y)));
  return {to_host<float>(y), to_host<float>(x.grad())};
}

bool right(const Result& result) {
  const std::vector<float> x = inputs();
  for (size_t i = 0; i < x.size(); ++i) {
    const float y = std::copysign(std::fmax(std::abs(x[i]) - 0.5f, 0.0f), x[i]);
    if (result.y[i] != y || result.dx[i] != 2 * y) return false;
  }
  return true;
}

// Returns true if the results on the device are correct, or if there is no such device.
bool check(const shale::Device& device) {
  const std::string name = to_string(device);
  try {
    const bool ok = right(compute(device));
    std::printf("%s: %s\n", name.c_str(), ok ? "right" : "wrong");
    return ok;
  } catch (const shale::UnavailableError& error) {
    std::printf("%s: left out: %s\n", name.c_str(), error.what());
    return true;
  }
}

}  // namespace

int main() {
  using shale::DeviceType;
  try {
    bool ok = check({});
    ok = check({.type = DeviceType::kEmu, .arch = 90}) && ok;
    ok = check({.type = DeviceType::kCuda}) && ok;
    return ok ? 0 : 1;
  } catch (const shale::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
