#include <cmath>
#include <fstream>
#include <map>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/create.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/index.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Tensors = std::vector<Tensor>;
struct Case {
  const char* name;
  std::vector<Shape> inputs;
  Tensor (*function)(const Tensors&);
};

Tensor columns(const Tensor& x) {
  return from_host<int32_t>(x.context(), std::vector<int32_t>{2, 0, 1, 3, 3, 2}, {3, 2});
}
Tensor square(const Tensor& x) {
  return x * x;
}
Tensor in_place(const Tensors& x) {
  const Tensor y = 2 * x[0];
  copy_(slice(slice(y, 0, 1, 3), 1, 1, 3), x[1]);
  copy_(slice(y, 1, 2, 3), scale(contiguous(slice(y, 1, 0, 1)), 1));
  return square(y);
}

// The cases of test/oracles/tensors.py.
const std::vector<Case> kCases = {
    {"operators",
     {{3, 4}, {4}},
     [](const Tensors& x) {
       const Tensor &a = x[0], &b = x[1];
       return -(2 * a + b) / (3 - a) + (1 - b) * a / 4 - 1 / (2 + b);
     }},
    {"comparisons",
     {{3, 4}, {4}},
     [](const Tensors& x) { return where(x[0] > x[1], x[0] * x[1], 0.f) + (x[0] <= 0.5f) * x[1]; }},
    {"dot", {{5}, {5}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
    {"row", {{5}, {5, 3}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
    {"column", {{2, 3, 5}, {5}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
    {"cumsum_rows", {{3, 4}}, [](const Tensors& x) { return square(cumsum(x[0], 0)); }},
    {"cumsum_columns", {{3, 4}}, [](const Tensors& x) { return square(cumsum(x[0], 1)); }},
    {"gather", {{3, 4}}, [](const Tensors& x) { return square(gather(x[0], 1, columns(x[0]))); }},
    {"scatter",
     {{3, 4}, {3, 2}},
     [](const Tensors& x) { return square(scatter(x[0], 1, columns(x[0]), x[1])); }},
    {"scatter_add",
     {{3, 4}, {3, 2}},
     [](const Tensors& x) { return square(scatter_add(x[0], 1, columns(x[0]), x[1])); }},
    {"in_place", {{3, 4}, {2, 2}}, in_place},
    {"linspace",
     {{5}},
     [](const Tensors& x) {
       Context& context = x[0].context();
       return x[0] * linspace(context, -1, 2, 5) + cast(arange(context, 0, 5), DType::kF32);
     }},
};

}  // namespace

TEST_CASE("functions and gradients agree with JAX in f64") {
  std::map<std::string, double> wanted;
  std::ifstream file(fixture_path("../oracles/tensors.txt"));
  std::string key;
  for (double value = 0; file >> key >> value;) wanted[key] = value;
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    size_t seen = 0;
    const auto compare = [&](const std::string& name, const Tensor& x) {
      const auto found = to_host<float>(contiguous(x));
      for (size_t i = 0; i < found.size(); ++i, ++seen) {
        CAPTURE(name, i, to_string(options.device));
        REQUIRE(wanted.contains(cat(name, ".", i)));
        // Sums of at most 12 products of numbers below 12, rounded to 24 bits.
        CHECK(std::abs(found[i] - wanted.at(cat(name, ".", i))) < 1e-5);
      }
    };
    for (const Case& one : kCases) {
      Tensors inputs;
      for (const Shape& shape : one.inputs) {
        std::vector<float> values;
        for (int64_t i = 0; i < shape.numel(); ++i) {
          values.push_back(float(std::sin(1.0 + double(i) + 10 * double(inputs.size()))));
        }
        inputs.push_back(leaf(context, shape, values));
      }
      const Tensor y = one.function(inputs);
      std::vector<float> weights;
      for (int64_t i = 0; i < y.numel(); ++i) weights.push_back(float(std::cos(double(i))));
      backward(y, from_host<float>(context, weights, y.shape()));
      compare(cat(one.name, ".y"), y);
      for (size_t n = 0; n < inputs.size(); ++n) {
        compare(cat(one.name, ".", n), inputs[n].grad());
      }
    }
    CHECK(seen == wanted.size());
  }
}

}  // namespace shale::test
