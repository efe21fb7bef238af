#include "shale/runtime/ops/moe.h"

#include <algorithm>
#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/grouped_swiglu.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Values = std::vector<Vec>;

struct Sizes {
  int64_t tokens, width, hidden, experts, active;
};

Vec times_transposed(const Vec& x, const double* w, int64_t rows) {
  const int64_t in = std::ssize(x);
  Vec y(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < in; ++i) y[size_t(r)] += w[r * in + i] * x[size_t(i)];
  }
  return y;
}

// Reference for MoE: each token uses the experts with the largest logits. Inputs: x, gate, w_gate,
// w_up, w_down, and optionally residual.
Vec reference(const Values& in, const Sizes& n, bool renormalise) {
  Vec y = in.size() > 5 ? in[5] : Vec(static_cast<size_t>(n.tokens * n.width));
  for (int64_t t = 0; t < n.tokens; ++t) {
    const Vec x(in[0].begin() + t * n.width, in[0].begin() + (t + 1) * n.width);
    Vec shares = times_transposed(x, in[1].data(), n.experts);
    double sum = 0;
    for (double& share : shares) sum += share = std::exp(share);
    std::vector<int64_t> order;
    for (int64_t e = 0; e < n.experts; ++e) order.push_back(e);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return shares[size_t(a)] > shares[size_t(b)];
    });
    if (renormalise) {
      sum = 0;
      for (int64_t j = 0; j < n.active; ++j) sum += shares[size_t(order[size_t(j)])];
    }
    for (int64_t j = 0; j < n.active; ++j) {
      const int64_t e = order[size_t(j)], matrix = e * n.hidden * n.width;
      Vec act = times_transposed(x, in[2].data() + matrix, n.hidden);
      const Vec up = times_transposed(x, in[3].data() + matrix, n.hidden);
      for (size_t i = 0; i < act.size(); ++i) act[i] *= up[i] / (1 + std::exp(-act[i]));
      const Vec out = times_transposed(act, in[4].data() + matrix, n.width);
      for (int64_t c = 0; c < n.width; ++c) {
        y[size_t(t * n.width + c)] += shares[size_t(e)] / sum * out[size_t(c)];
      }
    }
  }
  return y;
}

Tensor mixture(const std::vector<Tensor>& x, const RouterOptions& options) {
  const Routing routing = moe_route(x[0], x[1], {}, options);
  const Tensor rows =
      grouped_swiglu(moe_permute(x[0], routing), x[2], x[3], x[4], routing.offsets);
  return moe_combine(rows, routing, x.size() > 5 ? x[5] : Tensor());
}

OpCase mixture_case(const Sizes& n, bool renormalise, bool residual) {
  const RouterOptions options{.active = n.active, .rule = {.renormalise = renormalise}};
  OpCase op_case{.name = cat("mixture ", n.tokens, " ", n.experts, " ", n.active),
                 .inputs = {{n.tokens, n.width},
                            {n.experts, n.width},
                            {n.experts, n.hidden, n.width},
                            {n.experts, n.hidden, n.width},
                            {n.experts, n.width, n.hidden}},
                 .output = {n.tokens, n.width},
                 .op = [options](const std::vector<Tensor>& x) { return mixture(x, options); },
                 .reference = [n, renormalise](
                                  const Values& x) { return reference(x, n, renormalise); }};
  if (residual) op_case.inputs.push_back({n.tokens, n.width});
  return op_case;
}

}  // namespace

// Covers experts without tokens, all experts active, and rows without an expert. Runs only in f32:
// with 16-bit logits, the op may choose other experts than the reference.
TEST_CASE("a mixture of experts is its formula, and so are its gradients") {
  const Sizes sizes[] = {{1, 5, 3, 4, 1}, {3, 6, 4, 8, 2}, {4, 5, 3, 3, 3}, {140, 6, 5, 2, 1}};
  for (const Sizes& n : sizes) {
    for (const bool renormalise : {false, true}) {
      Context context(small_context());
      const OpCase op_case = mixture_case(n, renormalise, n.active == 2);
      CAPTURE(op_case.name, renormalise);
      const OpErrors errors = check_op(context, op_case);
      CHECK(errors.complete);
      // Roundings of sums of up to 140 terms in f32, with nonlinear functions in between.
      CHECK(errors.forward <= 2e-5);
      CHECK(errors.backward <= 5e-5);
    }
  }
}

TEST_CASE("tokens beyond an expert's capacity pass by it, and get no gradient from it") {
  Context context(small_context());
  // All three tokens choose the first of two experts, which has a capacity of two.
  const Tensor x = leaf(context, {3, 2}, {1, 2, 1, 3, 1, 4});
  const Tensor gate = leaf(context, {2, 2}, {1, 0, 0, 0});
  const Tensor up = random_leaf(context, {2, 3, 2}, 1), down = random_leaf(context, {2, 2, 3}, 2);
  const Routing routing = moe_route(x, gate, {}, {.active = 1, .capacity_factor = 1});
  CHECK(to_host<int32_t>(routing.counts) == std::vector<int32_t>{3, 0});
  CHECK(to_host<int32_t>(routing.rows) == std::vector<int32_t>{0, 1, -1});
  const Tensor y =
      moe_combine(grouped_swiglu(moe_permute(x, routing), up, up, down, routing.offsets), routing);
  const std::vector<float> found = to_host<float>(y);
  CHECK((found[0] != 0 && found[2] != 0));
  CHECK((found[4] == 0 && found[5] == 0));
  backward(y, from_host<float>(context, std::vector<float>(6, 1), {3, 2}));
  const std::vector<float> dx = to_host<float>(x.grad());
  CHECK((dx[0] != 0 && dx[2] != 0));
  CHECK((dx[4] == 0 && dx[5] == 0));
  const std::vector<float> d_down = to_host<float>(down.grad());
  CHECK(std::all_of(d_down.begin() + 6, d_down.end(), [](float g) { return g == 0; }));
}

TEST_CASE("a loss that balances experts weighs what all parts of the tokens count") {
  Context context(small_context());
  context.autograd().training = true;
  constexpr int64_t N = 12, C = 4, E = 4;
  const RouterOptions options{.active = 2, .balance_loss = 1};
  const std::vector<float> values = randn<float>(N * C, 1), gates = randn<float>(E * C, 2);
  // The gradients of routing weights are zero, so the gradients of tokens come only from the
  // balance loss.
  const auto gradients = [&](const Tensor& x, const Routing& routing) {
    backward(routing.weights, zeros(context, routing.weights.shape(), DType::kF32));
    return to_host<float>(x.grad());
  };
  const Tensor gate = leaf(context, {E, C}, gates), whole = leaf(context, {N, C}, values);
  const std::vector<float> want = gradients(whole, moe_route(whole, gate, {}, options));
  CHECK(std::any_of(want.begin(), want.end(), [](float value) { return std::abs(value) > 1e-3f; }));
  // Routes a third of the tokens, then the other tokens, both before the first backward.
  CountsOfParts counts{.all = zeros(context, {2, E}, DType::kI32), .tokens = N};
  std::vector<float> got;
  std::vector<std::pair<Tensor, Routing>> parts;
  for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 4}, {4, 8}}) {
    const auto begin = values.begin() + first * C;
    const Tensor x = leaf(context, {rows, C}, {begin, begin + rows * C});
    parts.emplace_back(x, moe_route(x, gate, {}, options, {}, counts));
    ++counts.part;
  }
  for (const auto& [x, routing] : parts) {
    const std::vector<float> of_part = gradients(x, routing);
    got.insert(got.end(), of_part.begin(), of_part.end());
  }
  // GEMMs have other numbers of rows: a few roundings of sums of E terms near 1.
  for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) < 1e-6f);
}

TEST_CASE("a mixture refuses what does not fit, in one line") {
  Context context(small_context());
  const Tensor x = zeros(context, {3, 4}, DType::kF32), gate = zeros(context, {2, 4}, DType::kF32);
  CHECK(contains(message_of<ShapeError>([&] { moe_route(x, gate, {}, {.active = 3}); }),
                 "moe_route: 3 experts are active, expected 1 to 2"));
  CHECK_THROWS_AS(moe_route(x, zeros(context, {2, 5}, DType::kF32), {}, {}), ShapeError);
  CHECK_THROWS_AS(moe_route(x, zeros(context, {2, 4}, DType::kBF16), {}, {}), DTypeError);
}

}  // namespace shale::test
