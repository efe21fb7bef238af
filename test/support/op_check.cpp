#include "shale/test/support/op_check.h"

#include <algorithm>
#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/numbers.h"

namespace shale::test {
namespace {

using Values = std::vector<std::vector<double>>;

double weighted(const std::vector<double>& output, const std::vector<double>& weights) {
  double total = 0;
  for (size_t i = 0; i < output.size(); ++i) total += output[i] * weights[i];
  return total;
}

// Computes d sum(w * reference) / d inputs by central differences in f64. For functions of order 1,
// a step h of 1e-5 keeps both errors below 1e-9: truncation (h² f''' / 6) and rounding (1e-16 / h).
Values differences(const OpCase& op_case, Values inputs, const std::vector<double>& weights) {
  constexpr double kStep = 1e-5;
  Values gradients = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t e = 0; e < inputs[i].size(); ++e) {
      const double x = inputs[i][e];
      inputs[i][e] = x + kStep;
      const double up = weighted(op_case.reference(inputs), weights);
      inputs[i][e] = x - kStep;
      const double down = weighted(op_case.reference(inputs), weights);
      inputs[i][e] = x;
      gradients[i][e] = (up - down) / (2 * kStep);
    }
  }
  return gradients;
}

std::vector<double> values_of(const Tensor& x) {
  const NoGrad no_grad(x.context());
  return to_f64(to_host<float>(cast(x, DType::kF32)));
}

double relative_error(const Tensor& got, const std::vector<double>& want) {
  return max_error(values_of(got), want) / std::max(1.0, max_abs(want));
}

}  // namespace

ContextOptions small_context(int threads) {
  return {.threads = threads, .seed = 7};
}

std::vector<ContextOptions> small_contexts() {
  std::vector<ContextOptions> contexts = {small_context()};
  for (const Exec& exec : devices_with({})) {
    if (exec.device.type != DeviceType::kEmu) continue;
    contexts.push_back(small_context());
    contexts.back().device = {.type = DeviceType::kEmu, .arch = exec.device.arch};
  }
  return contexts;
}

void expect_op(const OpCase& op_case, double f32_tolerance, double roundings) {
  const std::pair<DType, double> dtypes[] = {{DType::kF32, f32_tolerance},
                                             {DType::kBF16, roundings * ulp<bf16>()},
                                             {DType::kF16, roundings * ulp<f16>()}};
  for (const ContextOptions& options : small_contexts()) {
    for (const auto& [dtype, tolerance] : dtypes) {
      CAPTURE(op_case.name, dtype_name(dtype), to_string(options.device));
      Context context(options);
      const OpErrors errors = check_op(context, op_case, dtype);
      CHECK(errors.complete);
      CHECK(errors.forward <= tolerance);
      CHECK(errors.backward <= tolerance);
    }
  }
}

Tensor leaf(Context& context, const Shape& shape, std::vector<float> values) {
  return from_host<float>(context, values, shape).set_requires_grad(true);
}

Tensor random_leaf(Context& context, const Shape& shape, uint64_t seed, double std) {
  return leaf(context, shape, randn<float>(shape.numel(), seed, 0, std));
}

OpErrors check_op(Context& context, const OpCase& op_case, DType dtype) {
  std::vector<Tensor> inputs;
  Values values;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Tensor exact = random_leaf(context, op_case.inputs[i], 100 + i, op_case.input_std);
    inputs.push_back(cast(exact.detach(), dtype).set_requires_grad(true));
    values.push_back(values_of(inputs.back()));
  }
  const int64_t outputs = op_case.output.numel();
  const auto random = randn<float>(outputs, 99);
  const Tensor weights = cast(from_host<float>(context, random, op_case.output), dtype);

  const Tensor y = op_case.op(inputs);
  OpErrors errors;
  errors.complete = y.shape() == op_case.output;
  errors.forward = relative_error(y, op_case.reference(values));
  backward(y, y.dtype() == dtype ? weights : cast(weights, y.dtype()));
  const Values want = differences(op_case, values, values_of(weights));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor grad = inputs[i].grad();
    if (!grad.defined() || !(grad.shape() == inputs[i].shape())) {
      errors.complete = false;
      continue;
    }
    errors.backward = std::max(errors.backward, relative_error(grad, want[i]));
  }
  return errors;
}

}  // namespace shale::test
