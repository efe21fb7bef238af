#include "shale/runtime/ops/index.h"

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Ids = std::vector<int32_t>;

Tensor ids(const Tensor& x, const Ids& values, const Shape& shape) {
  return from_host<int32_t>(x.context(), values, shape);
}

}  // namespace

TEST_CASE("gather, index_select and scatter_add agree with f64") {
  const Ids along_cols = {2, 0, 2, 1, 1, 1}, along_rows = {1, 1, 0}, list = {2, 2, 0, 1};
  expect_op({.name = "gather of columns",
             .inputs = {{2, 3}},
             .output = {2, 3},
             .op =
                 [&](const auto& x) {
                   return gather(x[0], 1, ids(x[0], along_cols, {2, 3}));
                 },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 6; ++i)
                     y.push_back(x[0][i / 3 * 3 + size_t(along_cols[i])]);
                   return y;
                 }});
  expect_op({.name = "gather of rows",
             .inputs = {{2, 3}},
             .output = {1, 3},
             .op =
                 [&](const auto& x) {
                   return gather(x[0], 0, ids(x[0], along_rows, {1, 3}));
                 },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 3; ++i) y.push_back(x[0][size_t(along_rows[i]) * 3 + i]);
                   return y;
                 }});
  expect_op({.name = "index_select",
             .inputs = {{2, 3, 2}},
             .output = {2, 4, 2},
             .op = [&](const auto& x) { return index_select(x[0], -2, ids(x[0], list, {4})); },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 16; ++i) {
                     y.push_back(x[0][(i / 8 * 3 + size_t(list[i / 2 % 4])) * 2 + i % 2]);
                   }
                   return y;
                 }});
  expect_op({.name = "scatter_add",
             .inputs = {{2, 3}, {2, 3}},
             .output = {2, 3},
             .op =
                 [&](const auto& x) {
                   return scatter_add(x[0], 1, ids(x[0], along_cols, {2, 3}), x[1]);
                 },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   Vec y = x[0];
                   for (size_t i = 0; i < 6; ++i) y[i / 3 * 3 + size_t(along_cols[i])] += x[1][i];
                   return y;
                 }});
}

TEST_CASE("an index of the wrong shape or dtype is named") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {2, 3}, 1);
  CHECK(message_of<ShapeError>([&] {
          gather(x, 1, ids(x, {0, 1, 2}, {3, 1}));
        }) == "gather: index is [3,1], expected [2,1]");
  CHECK(message_of<DTypeError>([&] { gather(x, 1, x); }) ==
        "gather: index is fp32, expected int32");
  CHECK(message_of<ShapeError>([&] { index_select(x, 2, ids(x, {0}, {1})); }) ==
        "index_select: no dimension 2 in [2,3]");
  CHECK(message_of<DataError>([&] { index_select(x, 1, ids(x, {3}, {1})); }) ==
        "gather: index 3, expected 0 to 2");
}

TEST_CASE("concat, stack and split are each other's reverse, gradients included") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor a = random_leaf(context, {2, 3}, 1), b = random_leaf(context, {2, 1}, 2);
    const Tensor joined = concat({a, b, a}, 1);
    CHECK(joined.shape() == Shape{2, 7});
    const auto parts = split(joined, {3, 1, 3}, -1);
    CHECK(to_host<float>(contiguous(parts[1])) == to_host<float>(b));
    CHECK(to_host<float>(contiguous(parts[2])) == to_host<float>(a));
    const std::vector<float> weights = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    backward(sum(mul(joined, from_host<float>(context, weights, {2, 7}))));
    CHECK(to_host<float>(a.grad()) == std::vector<float>{6, 8, 10, 20, 22, 24});
    CHECK(to_host<float>(b.grad()) == std::vector<float>{4, 11});
    const Tensor c = random_leaf(context, {2, 3}, 3);
    const Tensor stacked = stack({a, c}, 1);
    CHECK(stacked.shape() == Shape{2, 2, 3});
    CHECK(to_host<float>(contiguous(slice(stacked, 1, 1, 2))) == to_host<float>(c));
    CHECK(stack({a, c}, -1).shape() == Shape{2, 3, 2});
    CHECK(to_host<float>(concat({transpose(a, 0, 1)}, 0)) ==
          to_host<float>(contiguous(transpose(a, 0, 1))));
  }
  Context context(small_context());
  const Tensor a = random_leaf(context, {2, 3}, 1);
  CHECK(message_of<ShapeError>([&] {
          concat({a, random_leaf(context, {3, 3}, 1)}, 1);
        }) == "concat: a tensor is [3,3], expected [2,3]");
  CHECK(message_of<ShapeError>([&] {
          split(a, {1, 1}, 1);
        }) == "split: the sizes add up to 2, dimension 1 of [2,3] is 3");
}

}  // namespace shale::test
