#include <functional>

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/conv.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/softmax.h"
#include "shale/runtime/ops/swiglu.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Leaves = std::vector<Tensor>;
struct Graph {
  const char* name;
  std::vector<Shape> leaves;
  std::function<Tensor(const Leaves&)> loss;
};

Tensor numbers(const Tensor& like, std::vector<int32_t> values, const Shape& shape) {
  return from_host<int32_t>(like.context(), values, shape);
}

// The loss is multiplied by 3. A loss that stores its gradient in saved tensors must therefore
// rescale them.
const std::vector<Graph> kGraphs = {
    {"elementwise", {{3, 4}, {4}}, [](const Leaves& x) { return sum(exp(x[0] * x[1]) / 2.f) * 3; }},
    {"matmul", {{3, 4}, {4, 2}}, [](const Leaves& x) { return sum(matmul(x[0], x[1])) * 3; }},
    {"linear",
     {{3, 4}, {2, 4}, {2}},
     [](const Leaves& x) { return sum(tanh(linear(x[0], x[1], x[2]))) * 3; }},
    {"layer_norm, softmax",
     {{3, 4}, {4}, {4}},
     [](const Leaves& x) { return mean(softmax(layer_norm(x[0], x[1], x[2]), 1) * x[0]) * 3; }},
    {"ffn",
     {{3, 4}, {8, 4}, {8}, {4, 8}, {4}},
     [](const Leaves& x) { return sum(ffn(x[0], x[1], x[2], x[3], x[4])) * 3; }},
    {"swiglu",
     {{3, 4}, {8, 4}, {8, 4}, {4, 8}},
     [](const Leaves& x) { return sum(swiglu(x[0], x[1], x[2], x[3])) * 3; }},
    {"attention",
     {{1, 5, 2, 4}, {1, 5, 2, 4}, {1, 5, 2, 4}},
     [](const Leaves& x) { return sum(attention(x[0], x[1], x[2])) * 3; }},
    {"cross_entropy",
     {{3, 4}},
     [](const Leaves& x) {
       return cross_entropy(scale(x[0], 2), numbers(x[0], {0, 2, 3}, {3}), 4) * 3;
     }},
    {"linear_cross_entropy",
     {{3, 4}, {5, 4}},
     [](const Leaves& x) {
       return linear_cross_entropy(x[0], x[1], numbers(x[0], {0, 2, 4}, {3}), 5) * 3;
     }},
    {"linear_cross_entropy of chunks",
     {{3, 4}, {5, 4}},
     [](const Leaves& x) {
       return linear_cross_entropy(x[0], x[1], numbers(x[0], {0, 2, 4}, {3}), 5,
                                   {.chunk_rows = 2}) *
              3;
     }},
    {"conv2d",
     {{1, 5, 5, 2}, {3, 2, 3, 3}},
     [](const Leaves& x) { return sum(conv2d(x[0], x[1], {}, {})) * 3; }},
    {"checkpoint",
     {{3, 4}},
     [](const Leaves& x) {
       return sum(checkpoint([](const Tensor& in) { return exp(in * in); }, x[0])) * 3;
     }},
    {"copy_",
     {{4}, {2}},
     [](const Leaves& x) {
       const Tensor y = scale(x[0], 2);
       copy_(slice(y, 0, 1, 3), x[1]);
       return sum(y * y) * 3;
     }},
};

}  // namespace

TEST_CASE("each backward through a retained graph adds the same gradient") {
  for (const Graph& graph : kGraphs) {
    CAPTURE(graph.name);
    Context context(small_context());
    Leaves once, twice;
    for (size_t i = 0; i < graph.leaves.size(); ++i) {
      once.push_back(random_leaf(context, graph.leaves[i], i + 1, 0.5));
      twice.push_back(leaf(context, graph.leaves[i], to_host<float>(once.back())));
    }
    backward(graph.loss(once));
    const Tensor loss = graph.loss(twice);
    backward(loss, {}, true);
    for (size_t i = 0; i < once.size(); ++i) {
      CHECK(to_host<float>(twice[i].grad()) == to_host<float>(once[i].grad()));
    }
    backward(loss);
    for (size_t i = 0; i < once.size(); ++i) {
      CAPTURE(i);
      const auto want = to_host<float>(once[i].grad() * 2);
      const auto found = to_host<float>(twice[i].grad());
      for (size_t k = 0; k < want.size(); ++k) CHECK(found[k] == Approx(want[k]).margin(1e-6));
    }
    CHECK(contains(message_of<AutogradError>([&] { backward(loss); }), "earlier backward"));
  }
}

TEST_CASE("two losses share a trunk that the first backward retains") {
  Context context(small_context());
  const Tensor x = leaf(context, {2}, {1, 2});
  const Tensor trunk = mul(x, x), one = sum(trunk) * 2, two = sum(trunk * trunk);
  backward(one, {}, true);
  backward(two);  // derivative of two: 4x + 4x^3
  CHECK(to_host<float>(x.grad()) == std::vector<float>{8, 40});
}

}  // namespace shale::test
