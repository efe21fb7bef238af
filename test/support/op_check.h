#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::test {

// Options of a context on the CPU, where most op tests run, with two threads.
ContextOptions small_context(int threads = 2);

// Returns small_context(), and the same for each emulated GPU if the build has the emulator.
std::vector<ContextOptions> small_contexts();

// A test case that compares an op with an f64 reference: forward values, and gradients with central
// differences of the reference.
struct OpCase {
  std::string name;
  std::vector<Shape> inputs;  // shapes of inputs with normal values
  Shape output;
  std::function<Tensor(const std::vector<Tensor>&)> op;
  // Computes the op in f64; values are row-major.
  std::function<std::vector<double>(const std::vector<std::vector<double>>&)> reference;
  double input_std = 1;
};

struct OpErrors {
  double forward = 0;    // forward error: largest |op - reference| / max(1, largest |reference|)
  double backward = 0;   // the same error of gradients of sum(w * output), with normal w
  bool complete = true;  // true: every input got a finite gradient of its shape
};

// Runs the case on `context`; inputs and the gradient of the output are rounded to `dtype`.
OpErrors check_op(Context& context, const OpCase& op_case, DType dtype = DType::kF32);

// Checks the case on all small_contexts(), in f32, bf16 and f16. `f32_tolerance` is the largest
// allowed f32 error. `roundings` is the allowed number of roundings of values of magnitude 1 in 16
// bits.
void expect_op(const OpCase& op_case, double f32_tolerance = 2e-6, double roundings = 2);

// Makes a leaf with these values, or with normal values. It requires a gradient.
Tensor leaf(Context& context, const Shape& shape, std::vector<float> values);
Tensor random_leaf(Context& context, const Shape& shape, uint64_t seed, double std = 1);

}  // namespace shale::test
