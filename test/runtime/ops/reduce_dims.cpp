#include <cmath>

#include "shale/runtime/amp/autocast.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;

// Reduces x [2, 3, 5] along the given dimensions by `join`.
template <class Join>
Vec reduced(const Vec& x, const std::vector<int>& dims, double first, Join join) {
  const int64_t sizes[] = {2, 3, 5};
  int64_t kept[] = {2, 3, 5};
  for (const int dim : dims) kept[dim] = 1;
  Vec y(size_t(kept[0] * kept[1] * kept[2]), first);
  for (int64_t i = 0; i < 30; ++i) {
    const int64_t at[] = {i / 15, i / 5 % 3, i % 5};
    int64_t to = 0;
    for (int d = 0; d < 3; ++d) to = to * kept[d] + (kept[d] == sizes[d] ? at[d] : 0);
    y[size_t(to)] = join(y[size_t(to)], x[size_t(i)]);
  }
  return y;
}

struct Dims {
  std::vector<int> dims;
  Shape kept, dropped;
};
const std::vector<Dims> kDims = {{{0}, {1, 3, 5}, {3, 5}},   {{1}, {2, 1, 5}, {2, 5}},
                                 {{2}, {2, 3, 1}, {2, 3}},   {{0, 2}, {1, 3, 1}, {3}},
                                 {{0, 1, 2}, {1, 1, 1}, {}}, {{}, {2, 3, 5}, {2, 3, 5}}};

}  // namespace

TEST_CASE("sums, means, maxima and minima over dimensions agree with f64") {
  for (const auto& [dims, kept, dropped] : kDims) {
    for (const bool keep : {false, true}) {
      OpCase c{.name = cat("to ", kept, " keep ", keep),
               .inputs = {{2, 3, 5}},
               .output = keep ? kept : dropped,
               .op = {},
               .reference = {}};
      const auto add = [](double a, double b) { return a + b; };
      c.op = [&](const std::vector<Tensor>& x) { return sum(x[0], dims, keep); };
      c.reference = [&](const std::vector<Vec>& x) { return reduced(x[0], dims, 0, add); };
      expect_op(c);
      c.op = [&](const std::vector<Tensor>& x) { return mean(x[0], dims, keep); };
      c.reference = [&](const std::vector<Vec>& x) {
        Vec y = reduced(x[0], dims, 0, add);
        for (double& value : y) value *= double(y.size()) / 30;
        return y;
      };
      expect_op(c);
      c.op = [&](const std::vector<Tensor>& x) { return max(x[0], dims, keep); };
      c.reference = [&](const std::vector<Vec>& x) {
        return reduced(x[0], dims, -INFINITY, [](double a, double b) { return std::max(a, b); });
      };
      expect_op(c);
      c.op = [&](const std::vector<Tensor>& x) { return min(x[0], dims, keep); };
      c.reference = [&](const std::vector<Vec>& x) {
        return reduced(x[0], dims, INFINITY, [](double a, double b) { return std::min(a, b); });
      };
      expect_op(c);
    }
  }
}

TEST_CASE("negative dimensions count from the end, and views are reduced as they lie") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4, 6}, 1);
  CHECK(to_host<float>(sum(x, {-1})) == to_host<float>(sum(x, {1})));
  const auto got = to_host<float>(sum(transpose(x, 0, 1), {0}));
  const auto want = to_host<float>(sum(x, {1}));
  for (size_t i = 0; i < 4; ++i) CHECK(got[i] == Approx(want[i]));
}

TEST_CASE("equal maxima share the gradient, and argmax names the first") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor x = leaf(context, {2, 3}, {1, 7, 7, 2, 0, 1});
    backward(sum(max(x, {1})));
    CHECK(to_host<float>(x.grad()) == std::vector<float>{0, 0.5f, 0.5f, 1, 0, 0});
    CHECK(to_host<int32_t>(argmax(x, 1)) == std::vector<int32_t>{1, 0});
    CHECK(to_host<int32_t>(argmax(x, 0)) == std::vector<int32_t>{1, 0, 0});
    CHECK(argmax(x, -1, true).shape() == Shape{2, 1});
    CHECK_FALSE(argmax(x, 0).requires_grad());
  }
}

TEST_CASE("sums of a region of autocast are f32") {
  Context context(small_context());
  const Tensor x = cast(random_leaf(context, {3, 4}, 1), DType::kBF16);
  CHECK(sum(x, {0}).dtype() == DType::kBF16);
  const amp::Autocast region(context, DType::kBF16);
  CHECK(sum(x, {0}).dtype() == DType::kF32);
}

TEST_CASE("reductions name the dimension that is wrong") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {2, 3}, 1), none = random_leaf(context, {2, 0}, 1);
  const auto error = [](auto&& call) { return message_of<ShapeError>(call); };
  CHECK(error([&] { sum(x, {2}); }) == "sum: no dimension 2 in [2,3]");
  CHECK(error([&] { mean(x, {1, -1}); }) == "mean: dimension -1 of [2,3] is named twice");
  CHECK(error([&] { max(none, {1}); }) == "max: x is [2,0], expected sizes above 0");
  CHECK(error([&] { mean(none, {1}); }) == "mean: x is [2,0], expected sizes above 0");
  CHECK(to_host<float>(sum(none, {1})) == std::vector<float>{0, 0});
}

}  // namespace shale::test
