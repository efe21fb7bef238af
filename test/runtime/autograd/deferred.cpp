#include "shale/runtime/autograd/deferred.h"

#include "shale/runtime/autograd/boundary.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

constexpr int64_t kRows = 6, kWidth = 8, kVocab = 11;

Tensor parameter(Context& context, const Shape& shape, uint64_t seed) {
  Tensor x = from_host<float>(context, randn<float>(shape.numel(), seed), shape);
  x.set_requires_grad(true);
  return x;
}

// A model that uses leaves in all ways: in matmuls, norms, a table, and elementwise ops.
struct Model {
  explicit Model(Context& context)
      : table(parameter(context, {kVocab, kWidth}, 1)),
        gain(parameter(context, {kWidth}, 2)),
        bias(parameter(context, {kWidth}, 3)),
        up(parameter(context, {4 * kWidth, kWidth}, 4)),
        up_bias(parameter(context, {4 * kWidth}, 5)),
        down(parameter(context, {kWidth, 4 * kWidth}, 6)),
        down_bias(parameter(context, {kWidth}, 7)),
        head(parameter(context, {kVocab, kWidth}, 8)),
        shift(parameter(context, {kRows, kWidth}, 9)),
        leaves{table, gain, bias, up, up_bias, down, down_bias, head, shift} {}

  Tensor first(const Tensor& ids) { return reshape(embedding(ids, table, {}), {kRows, kWidth}); }
  Tensor rest(const Tensor& x, const Tensor& targets, int64_t chunk) {
    const Tensor normed = layer_norm(add(x, shift), gain, bias, 1e-5f);
    const Tensor y = ffn(normed, up, up_bias, down, down_bias, x, Gelu::kTanh);
    return linear_cross_entropy(y, head, targets, kVocab, {.chunk_rows = chunk});
  }
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (const Tensor& leaf : leaves) {
      const std::vector<float> one = to_host<float>(leaf_state(leaf).grad);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  Tensor table, gain, bias, up, up_bias, down, down_bias, head, shift;
  std::vector<Tensor> leaves;
};

Tensor tokens(Context& context, uint64_t seed, const Shape& shape) {
  return from_host<int32_t>(context, rand_int<int32_t>(kRows, seed, 0, kVocab - 1), shape);
}

}  // namespace

TEST_CASE("a backward in two halves has the bits of one, whatever comes between them") {
  for (const int64_t chunk : {int64_t{0}, int64_t{4}}) {
    Context context(small_context(1));
    Model whole(context), halves(context);
    std::vector<DeferredGrads> rests(2);
    for (const uint64_t micro : {0u, 1u}) {
      const Tensor ids = tokens(context, micro, {1, kRows});
      const Tensor targets = tokens(context, 10 + micro, {kRows});
      backward(whole.rest(whole.first(ids), targets, chunk));
      backward_inputs(halves.rest(halves.first(ids), targets, chunk), {}, rests[micro]);
      CHECK_FALSE(rests[micro].empty());
      // backward_inputs() does not compute gradients of leaves.
      CHECK_FALSE(leaf_state(halves.up).grad.defined());
    }
    for (DeferredGrads& rest : rests) {
      backward_weights(context, rest);
      CHECK(rest.empty());
    }
    CHECK(same_bits(whole.gradients(), halves.gradients()));
  }
}

TEST_CASE("a leaf is ready once, in the second half, after its last gradient") {
  Context context(small_context(1));
  Model model(context);
  std::vector<std::string> seen;
  const BackwardHooksScope hooks(context, {.begin = [&] { seen.push_back("begin"); },
                                           .end = [&] { seen.push_back("end"); }});
  leaf_state(model.up).ready_hooks.push_back([&] { seen.push_back("up"); });
  const Tensor x = model.first(tokens(context, 0, {1, kRows}));
  // Both uses belong to the same leaf `up`.
  const Tensor y = add(linear(x, model.up), linear(scale(x, 2), model.up));
  DeferredGrads rest;
  backward_inputs(sum(y), {}, rest);
  CHECK(seen.empty());
  backward_weights(context, rest);
  CHECK(seen == std::vector<std::string>{"begin", "up", "end"});
}

TEST_CASE("a graph in two parts has the bits of one") {
  Context context(small_context(1));
  Model whole(context), parts(context);
  const Tensor ids = tokens(context, 0, {1, kRows}), targets = tokens(context, 1, {kRows});
  backward(whole.rest(whole.first(ids), targets, 0));

  const Tensor given = parts.first(ids);
  const Tensor root = history_of(given);
  Tensor taken = from_host<float>(context, to_host<float>(given), given.shape());
  Tensor dx;
  begin_graph(taken, [&](const Tensor& gradient) { dx = gradient; });
  backward(parts.rest(taken, targets, 0));
  REQUIRE(dx.defined());
  backward(root, dx);
  CHECK(same_bits(whole.gradients(), parts.gradients()));
}

}  // namespace shale::test
