#include "shale/runtime/ops/conv.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "shale/runtime/amp/autocast.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Values = std::vector<Vec>;

struct Sizes {
  int64_t images, edge, channels, out, kernel;
  Windows windows;

  int64_t out_edge() const { return windows.count(edge, kernel); }
  Shape x() const { return {images, edge, edge, channels}; }
  Shape weight() const { return {out, channels, kernel, kernel}; }
  Shape y() const { return {images, out_edge(), out_edge(), out}; }
};

// Reference with the inputs x, weight and optionally bias.
Vec conv_reference(const Values& in, const Sizes& s) {
  Vec y;
  for (int64_t n = 0; n < s.images; ++n)
    for (int64_t i = 0; i < s.out_edge(); ++i)
      for (int64_t j = 0; j < s.out_edge(); ++j)
        for (int64_t o = 0; o < s.out; ++o) {
          double sum = in.size() > 2 ? in[2][size_t(o)] : 0;
          for (int64_t u = 0; u < s.kernel; ++u)
            for (int64_t v = 0; v < s.kernel; ++v) {
              const int64_t h = i * s.windows.stride + u - s.windows.padding;
              const int64_t w = j * s.windows.stride + v - s.windows.padding;
              if (h < 0 || h >= s.edge || w < 0 || w >= s.edge) continue;
              for (int64_t c = 0; c < s.channels; ++c) {
                const auto x = size_t(((n * s.edge + h) * s.edge + w) * s.channels + c);
                const auto k = size_t(((o * s.channels + c) * s.kernel + u) * s.kernel + v);
                sum += in[0][x] * in[1][k];
              }
            }
          y.push_back(sum);
        }
  return y;
}

// Allows for f32 sums of up to 45 terms. 16-bit results are rounded once. 16-bit gradients are
// computed from rounded inputs and rounded again.
void expect_agrees(const OpCase& op_case) {
  expect_op(op_case, 4e-6);
}

}  // namespace

TEST_CASE("conv2d agrees with f64, its gradients with finite differences") {
  const Sizes sizes[] = {{2, 4, 3, 5, 3, {.stride = 1, .padding = 1}},
                         {1, 6, 2, 3, 3, {.stride = 2, .padding = 1}},
                         {2, 5, 3, 4, 1, {.stride = 2}},
                         {1, 6, 3, 4, 3, {.stride = 3}}};
  for (const Sizes& s : sizes) {
    for (const bool with_bias : {false, true}) {
      OpCase op_case{.name = cat("conv2d ", s.x(), " ", s.weight(), " bias ", with_bias),
                     .inputs = {s.x(), s.weight()},
                     .output = s.y(),
                     .op =
                         [s](const std::vector<Tensor>& x) {
                           return conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), s.windows);
                         },
                     .reference = [s](const Values& in) { return conv_reference(in, s); }};
      if (with_bias) op_case.inputs.push_back({s.out});
      expect_agrees(op_case);
    }
  }
}

TEST_CASE("max_pool2d agrees with f64, its gradient with finite differences") {
  constexpr int64_t kEdge = 5, kChannels = 3, kOut = 3;
  expect_agrees(
      {.name = "max_pool2d",
       .inputs = {{2, kEdge, kEdge, kChannels}},
       .output = {2, kOut, kOut, kChannels},
       .op =
           [](const std::vector<Tensor>& x) {
             return max_pool2d(x[0], 3, {.stride = 2, .padding = 1});
           },
       .reference =
           [](const Values& in) {
             Vec y;
             for (int64_t n = 0; n < 2; ++n)
               for (int64_t i = 0; i < kOut; ++i)
                 for (int64_t j = 0; j < kOut; ++j)
                   for (int64_t c = 0; c < kChannels; ++c) {
                     double best = -std::numeric_limits<double>::infinity();
                     for (int64_t h = std::max<int64_t>(2 * i - 1, 0); h < 2 * i + 2; ++h)
                       for (int64_t w = std::max<int64_t>(2 * j - 1, 0); w < 2 * j + 2; ++w) {
                         if (h >= kEdge || w >= kEdge) continue;
                         const auto at = size_t(((n * kEdge + h) * kEdge + w) * kChannels + c);
                         best = std::max(best, in[0][at]);
                       }
                     y.push_back(best);
                   }
             return y;
           }});
}

TEST_CASE("global_average_pool is the mean over pixels") {
  expect_agrees({.name = "global_average_pool",
                 .inputs = {{2, 3, 4, 5}},
                 .output = {2, 5},
                 .op = [](const std::vector<Tensor>& x) { return global_average_pool(x[0]); },
                 .reference =
                     [](const Values& in) {
                       Vec y(10);
                       for (size_t i = 0; i < in[0].size(); ++i) {
                         y[i / 60 * 5 + i % 5] += in[0][i] / 12;
                       }
                       return y;
                     }});
}

TEST_CASE("the gradients of a weight that is used twice add up") {
  Context context(small_context());
  const Tensor weight = random_leaf(context, {4, 4, 3, 3}, 1);
  const Tensor x = random_leaf(context, {2, 4, 4, 4}, 2);
  const Windows same{.stride = 1, .padding = 1};
  const Tensor once = conv2d(x, weight, {}, same);
  backward(sum(once));
  const std::vector<float> first = to_host<float>(weight.grad());
  backward(sum(conv2d(x, weight, {}, same)));
  std::vector<double> want;
  for (const float value : first) want.push_back(2.0 * double{value});
  CHECK(max_error(to_host<float>(weight.grad()), want) == 0);
}

// Runs conv2d on `images` images, forward and backward. Returns the result and the gradient of x.
std::vector<float> product_and_gradient(Context& context, const Tensor& weight, int64_t images) {
  const Tensor x = random_leaf(context, {images, 6, 6, 5}, 2);
  const Tensor y = conv2d(x, weight, {}, {.stride = 1, .padding = 1});
  backward(sum(mul(y, y)));
  std::vector<float> both = to_host<float>(cast(y, DType::kF32));
  const std::vector<float> gradient = to_host<float>(x.grad());
  both.insert(both.end(), gradient.begin(), gradient.end());
  return both;
}

TEST_CASE("a weight's order for convolutions is kept while it does not change") {
  for (const bool is_low : {false, true}) {
    Context context(small_context()), other(small_context());
    std::optional<amp::Autocast> low, other_low;
    if (is_low) low.emplace(context, DType::kBF16), other_low.emplace(other, DType::kBF16);
    const Tensor weight = random_leaf(context, {20, 5, 3, 3}, 1);
    const auto workspace = [&] {
      return context.allocator().stats().current[size_t(MemoryTag::kWorkspace)];
    };
    const std::vector<float> want = product_and_gradient(context, weight, 3);
    const int64_t before = workspace();
    CHECK(product_and_gradient(context, weight, 3) == want);
    CHECK(workspace() > before);  // after the second use, a packed copy of the weight is kept
    CHECK(product_and_gradient(context, weight, 3) == want);

    // Changes the weight and the number of images: results must not depend on copies that are kept.
    // Copies for one number of images have one size; for another number their order and size may
    // differ.
    std::vector<int64_t> taken;
    for (const int64_t images : {3, 4, 1, 3, 4, 1, 3, 4, 1}) {
      Tensor values = weight.detach();
      scale_(values, float(images) + 0.5f);
      const Tensor fresh = random_leaf(other, {20, 5, 3, 3}, 1);
      Tensor fresh_values = fresh.detach();
      copy_(fresh_values, values);
      CHECK(product_and_gradient(context, weight, images) ==
            product_and_gradient(other, fresh, images));
      taken.push_back(workspace());
    }
    CHECK(std::equal(taken.begin() + 6, taken.end(), taken.begin() + 3));
  }
}

TEST_CASE("operations on images refuse shapes that do not fit") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {1, 4, 4, 3}, 1),
               weight = random_leaf(context, {2, 4, 3, 3}, 2);
  CHECK(message_of<ShapeError>([&] { conv2d(x, weight); }) ==
        "conv2d: weight is [2,4,3,3], x is [1,4,4,3], expected [O,C,kh,kw] and [N,H,W,C]");
  const Tensor wide = random_leaf(context, {2, 3, 5, 5}, 2);
  CHECK(contains(message_of<ShapeError>([&] { conv2d(x, wide); }), "no window of [2,3,5,5]"));
  CHECK_THROWS_AS(conv2d(x, wide, random_leaf(context, {3}, 3), {.padding = 1}), ShapeError);
  CHECK_THROWS_AS(max_pool2d(x, 0, {}), ShapeError);
  CHECK_THROWS_AS(max_pool2d(weight, 3, {.padding = 3}), ShapeError);
  CHECK_THROWS_AS(global_average_pool(random_leaf(context, {2, 3}, 1)), ShapeError);
}

}  // namespace shale::test
