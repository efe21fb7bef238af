#include "shale/runtime/ops/norm.h"

#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Values = std::vector<Vec>;

constexpr double kEps = double{1e-5f};

Vec normed(const Vec& x, const Vec& gain) {
  const size_t cols = gain.size();
  Vec out;
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += x[begin + c] * x[begin + c];
    const double rstd = 1 / std::sqrt(squares / double(cols) + kEps);
    for (size_t c = 0; c < cols; ++c) out.push_back(x[begin + c] * rstd * gain[c]);
  }
  return out;
}

// Allows for sums of up to 37 terms in f32, with a margin for the functions in between; in 16 bits
// for up to four roundings (see ops.cpp).
void expect_agrees(const OpCase& op_case) {
  expect_op(op_case, 2e-5, 4);
}

}  // namespace

TEST_CASE("rms_norm agrees with f64") {
  for (const int64_t cols : {2, 5, 16, 37}) {
    expect_agrees({.name = cat("rms_norm ", cols),
                   .inputs = {{3, cols}, {cols}},
                   .output = {3, cols},
                   .op = [](const std::vector<Tensor>& x) { return rms_norm(x[0], x[1]); },
                   .reference = [](const Values& x) { return normed(x[0], x[1]); }});
  }
}

TEST_CASE("stream_rms_norm sends both gradients through its sum") {
  expect_agrees({.name = "with a branch",
                 .inputs = {{4, 6}, {4, 6}, {6}},
                 .output = {4, 6},
                 .op =
                     [](const std::vector<Tensor>& x) {
                       const auto [y, stream] = stream_rms_norm(x[0], x[1], x[2]);
                       return add(y, scale(stream, 0.5f));
                     },
                 .reference =
                     [](const Values& x) {
                       Vec sum = x[0];
                       for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[1][i];
                       Vec out = normed(sum, x[2]);
                       for (size_t i = 0; i < out.size(); ++i) out[i] += 0.5 * sum[i];
                       return out;
                     }});
}

TEST_CASE("rms_norm needs a gain of the row's width") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {3, 4}, 1), gain = random_leaf(context, {3}, 2);
  CHECK(message_of<ShapeError>([&] { rms_norm(x, gain); }) ==
        "rms_norm: gain is [3], expected [4]");
}

}  // namespace shale::test
