#include "shale/runtime/ops/softmax.h"

#include <cmath>

#include "shale/runtime/amp/autocast.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;

// Reference: softmax of x [3, 4, 5] along a dimension.
Vec reference(const Vec& x, int dim, bool log) {
  const size_t size[] = {3, 4, 5}, stride[] = {20, 5, 1};
  Vec y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t first = i - i / stride[dim] % size[dim] * stride[dim];
    double sum = 0;
    for (size_t k = 0; k < size[dim]; ++k) sum += std::exp(x[first + k * stride[dim]]);
    y[i] = log ? x[i] - std::log(sum) : std::exp(x[i]) / sum;
  }
  return y;
}

}  // namespace

TEST_CASE("softmax and log_softmax along any dimension agree with f64") {
  for (const int dim : {-1, 0, 1, 2}) {
    for (const bool log : {false, true}) {
      expect_op({.name = cat(log ? "log_softmax " : "softmax ", dim),
                 .inputs = {{3, 4, 5}},
                 .output = {3, 4, 5},
                 .op =
                     [=](const std::vector<Tensor>& x) {
                       return log ? log_softmax(x[0], dim) : softmax(x[0], dim);
                     },
                 .reference =
                     [=](const std::vector<Vec>& x) {
                       return reference(x[0], dim < 0 ? dim + 3 : dim, log);
                     }},
                4e-6, 4);
    }
  }
}

TEST_CASE("softmax of a region of autocast is f32") {
  Context context(small_context());
  const Tensor x = cast(random_leaf(context, {2, 3}, 1), DType::kBF16);
  CHECK(softmax(x).dtype() == DType::kBF16);
  const amp::Autocast region(context, DType::kBF16);
  CHECK(softmax(x).dtype() == DType::kF32);
}

TEST_CASE("softmax names the dimension that is wrong") {
  Context context(small_context());
  CHECK(message_of<ShapeError>([&] {
          softmax(random_leaf(context, {2, 3}, 1), 2);
        }) == "softmax: no dimension 2 in [2,3]");
}

}  // namespace shale::test
