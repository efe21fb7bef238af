#include "shale/runtime/amp/autocast.h"

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/swiglu.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using amp::Autocast;

std::vector<float> values(const Tensor& x) {
  const NoGrad no_grad(x.context());
  return to_host<float>(cast(contiguous(x), DType::kF32));
}

}  // namespace

TEST_CASE("in a region ops compute in the dtype of their list") {
  const DType low = GENERATE(DType::kBF16, DType::kF16);
  CAPTURE(dtype_name(low));
  Context context(small_context());
  const Tensor x = random_leaf(context, {2, 3, 12}, 1), w = random_leaf(context, {12, 12}, 2);
  const Tensor gain = random_leaf(context, {12}, 3), half = cast(x, low);
  const Autocast region(context, low);
  CHECK(linear(x, w).dtype() == low);
  CHECK(ffn(x, w, gain, w, gain).dtype() == low);
  CHECK(swiglu(x, w, w, w).dtype() == low);
  CHECK(swiglu(x, w, w, w, x).dtype() == DType::kF32);
  CHECK(packed_attention(x, 2).dtype() == low);
  const Tensor heads = reshape(x, {2, 3, 3, 4});
  CHECK(attention(slice(heads, 2, 0, 1), slice(heads, 2, 1, 2), slice(heads, 2, 2, 3)).dtype() ==
        low);
  CHECK(layer_norm(half, gain, gain).dtype() == DType::kF32);
  CHECK(rms_norm(half, gain).dtype() == DType::kF32);
  CHECK(sum(half).dtype() == DType::kF32);
  // The result has the widest dtype of the inputs.
  CHECK(add(half, x).dtype() == DType::kF32);
  CHECK(mul(half, x).dtype() == DType::kF32);
  CHECK(add(half, half).dtype() == low);
  CHECK(linear(x, w, gain, x).dtype() == DType::kF32);
  CHECK(linear(x, w, gain, half).dtype() == low);
  CHECK(stream_layer_norm(half, x, gain, gain).stream.dtype() == DType::kF32);
  // The result has the dtype of the input.
  CHECK(gelu(half).dtype() == low);
  CHECK(gelu(x).dtype() == DType::kF32);
  {
    const Autocast off(context, DType::kF32);
    CHECK(linear(x, w).dtype() == DType::kF32);
  }
  CHECK(linear(x, w).dtype() == low);
}

TEST_CASE("outside of regions nothing is cast, and mixed dtypes stay errors") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {2, 4}, 1), w = random_leaf(context, {4, 4}, 2);
  try {
    const Autocast region(context, DType::kBF16);
    throw DataError("out of the region");
  } catch (const DataError&) {
    CHECK(linear(x, w).dtype() == DType::kF32);
  }
  CHECK_THROWS_AS(linear(cast(x, DType::kBF16), w), DTypeError);
  CHECK(contains(message_of<ConfigError>([&] { Autocast(context, DType::kI32); }), "int32"));
}

TEST_CASE("a region gives what casts by hand give, gradients included") {
  Context context(small_context());
  const auto gradients = [&](bool region) {
    const Tensor x = random_leaf(context, {6, 8}, 1), w = random_leaf(context, {8, 8}, 2);
    const Tensor b = random_leaf(context, {8}, 3), gain = random_leaf(context, {8}, 4);
    const DType low = DType::kBF16;
    Tensor y;
    if (region) {
      const Autocast scope(context, low);
      y = layer_norm(linear(gelu(linear(x, w, b)), w, b, x), gain, b);
    } else {
      const auto product = [&](const Tensor& in) {
        return linear(cast(in, low), cast(w, low), cast(b, low));
      };
      y = layer_norm(add(cast(product(gelu(product(x))), DType::kF32), x), gain, b);
    }
    backward(y, from_host<float>(context, randn<float>(y.numel(), 5), y.shape()));
    std::vector<std::vector<float>> all = {values(y)};
    for (const Tensor& leaf : {x, w, b, gain}) {
      CHECK(leaf.grad().dtype() == DType::kF32);
      all.push_back(values(leaf.grad()));
    }
    return all;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("a weight that is used several times is cast once, until it changes") {
  Context context(small_context());
  const Tensor x = full(context, {4, 64}, DType::kBF16, 1);
  const Tensor w = random_leaf(context, {64, 64}, 2);
  const auto held = [&] {
    return context.allocator().stats().current[size_t(MemoryTag::kActivation)];
  };
  const Autocast region(context, DType::kBF16);
  // Bytes that a matmul keeps for backward: its result and its bf16 copy of the weight.
  constexpr int64_t kResult = 4 * 64 * 2, kCopy = 64 * 64 * 2;
  std::vector<Tensor> kept;
  const auto use = [&] {
    const int64_t before = held();
    kept.push_back(linear(x, w));
    return held() - before;
  };
  CHECK(use() == kResult + kCopy);
  CHECK(use() == kResult);
  CHECK(use() == kResult);
  w.bump_version();  // tells autocast that the weight has changed, as optimizers do
  CHECK(use() == kResult + kCopy);
  CHECK(values(kept[0]) == values(kept[3]));
  {
    const Autocast other(context, DType::kF16);
    kept.push_back(linear(cast(x, DType::kF16), w));
    CHECK(kept.back().dtype() == DType::kF16);
  }
  kept.clear();
  {
    const NoGrad no_grad(context);
    CHECK(use() == kResult);  // the copy is freed, because nothing keeps it
  }
  // Both results use the same copy of the weight, and have separate backward passes.
  const Tensor first = sum(linear(x, w)), second = sum(linear(x, w));
  backward(first);
  const std::vector<float> once = values(w.grad());
  backward(second);
  const std::vector<float> twice = values(w.grad());
  for (size_t i = 0; i < once.size(); ++i) REQUIRE(twice[i] == 2 * once[i]);
}

TEST_CASE("the gradient of a weight is not rounded on its way to f32") {
  Context context(small_context());
  // bf16, with 8 bits, rounds 1 + 2^-9 to 1. In f32 the sum of the two terms is exact.
  const Tensor x = leaf(context, {2, 1}, {1, 0x1p-9f}), w = leaf(context, {1, 1}, {1});
  const Autocast region(context, DType::kBF16);
  backward(sum(linear(x, w)));
  CHECK(values(w.grad()) == std::vector<float>{1 + 0x1p-9f});
}

TEST_CASE("a loss in a region takes its gradient through low-precision logits") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {6, 8}, 1), w = random_leaf(context, {16, 8}, 2);
  const std::vector<int32_t> ids = {0, 3, 9, 1, 1, 8};
  const Tensor targets = from_host<int32_t>(context, ids, {6});
  for (const int64_t chunk_rows : {0, 4}) {
    const auto loss_of = [&](const Tensor& in, const Tensor& table) {
      return linear_cross_entropy(in, table, targets, 10, {.chunk_rows = chunk_rows});
    };
    const Tensor by_hand = loss_of(cast(x, DType::kBF16), cast(w, DType::kBF16));
    const Autocast region(context, DType::kBF16);
    CHECK(values(loss_of(x, w)) == values(by_hand));
  }
}

TEST_CASE("a checkpoint runs again under the region of its first run") {
  Context context(small_context());
  const auto gradient = [&](Recompute level) {
    const Tensor x = random_leaf(context, {4, 8}, 1), w = random_leaf(context, {8, 8}, 2);
    const Tensor gain = random_leaf(context, {8}, 3);
    Tensor y;
    {
      const Autocast region(context, DType::kBF16);
      y = recompute(
          level,
          [&](const Tensor& in) {
            return gelu(linear(layer_norm(gelu(linear(in, w)), gain, {}), w));
          },
          scale(x, 1));
      y = sum(y);
    }
    backward(y);  // backward runs after the autocast region has ended
    return std::pair(values(x.grad()), values(w.grad()));
  };
  const auto want = gradient(Recompute::kNone);
  CHECK(gradient(Recompute::kSelective) == want);
  CHECK(gradient(Recompute::kFull) == want);
}

}  // namespace shale::test
