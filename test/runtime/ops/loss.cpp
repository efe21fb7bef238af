#include <cmath>

#include "shale/kernels/loss.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

constexpr int64_t kRows = 7, kWidth = 5, kVocab = 11, kPadded = 16;
const std::vector<int32_t> kTargets = {0, 10, 3, kernels::kIgnoreTarget, 3, 7, 1};

std::vector<double> reference_loss(const std::vector<std::vector<double>>& x, double softcap) {
  double total = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    if (kTargets[size_t(r)] == kernels::kIgnoreTarget) continue;
    std::vector<double> logits;
    double sum = 0;
    for (int64_t v = 0; v < kVocab; ++v) {
      double logit = 0;
      for (int64_t c = 0; c < kWidth; ++c) {
        logit += x[0][size_t(r * kWidth + c)] * x[1][size_t(v * kWidth + c)];
      }
      if (softcap > 0) logit = softcap * std::tanh(logit / softcap);
      logits.push_back(logit);
      sum += std::exp(logit);
    }
    total += std::log(sum) - logits[size_t(kTargets[size_t(r)])];
  }
  return {total};
}

OpCase loss_case(Context& context, int64_t chunk_rows, float softcap) {
  return {.name = cat("chunk ", chunk_rows, ", softcap ", softcap),
          .inputs = {{kRows, kWidth}, {kPadded, kWidth}},
          .output = {},
          .op =
              [&context, chunk_rows, softcap](const std::vector<Tensor>& x) {
                const Tensor targets = from_host<int32_t>(context, kTargets, {kRows});
                return linear_cross_entropy(x[0], x[1], targets, kVocab,
                                            {.chunk_rows = chunk_rows, .softcap = softcap});
              },
          .reference =
              [softcap](const std::vector<std::vector<double>>& x) {
                return reference_loss(x, softcap);
              }};
}

}  // namespace

TEST_CASE("the loss agrees with f64 in any chunks, over a padded vocabulary with ignored targets") {
  const float softcap = GENERATE(0.f, 1.5f, 30.f);
  for (const int64_t chunk_rows : {0, 1, 3, 7, 100}) {
    Context context(small_context());
    const OpErrors errors = check_op(context, loss_case(context, chunk_rows, softcap));
    CAPTURE(chunk_rows, softcap);
    CHECK(errors.complete);
    CHECK(errors.forward <= 1e-6);
    CHECK(errors.backward <= 1e-5);
  }
}

TEST_CASE("a loss over no rows gives the weight gradient zero, not what was in its memory") {
  for (const int64_t chunk_rows : {0, 4}) {
    Context context(small_context());
    const Tensor w = random_leaf(context, {kPadded, kWidth}, 1);
    backward(scale(w, 1), full(context, w.shape(), DType::kF32, 1));
    leaf_state(w).has_value = false;
    const Tensor no_targets = from_host<int32_t>(context, {}, {0});
    backward(linear_cross_entropy(random_leaf(context, {0, kWidth}, 2), w, no_targets, kVocab,
                                  {.chunk_rows = chunk_rows}));
    CHECK(to_host<float>(w.grad()) == std::vector<float>(size_t(kPadded * kWidth), 0.0f));
  }
}

TEST_CASE("a chunked loss never has more logits than its chunk") {
  constexpr int64_t kManyRows = 1024, kManyTokens = 4096;
  const auto peak = [&](int64_t chunk_rows) {
    Context context(small_context());
    const Tensor x = random_leaf(context, {kManyRows, 8}, 1);
    const Tensor w = random_leaf(context, {kManyTokens, 8}, 2);
    const std::vector<int32_t> ids(kManyRows, 5);
    backward(linear_cross_entropy(x, w, from_host<int32_t>(context, ids, {kManyRows}), kManyTokens,
                                  {.chunk_rows = chunk_rows}));
    return context.allocator().stats().at_peak[size_t(MemoryTag::kActivation)];
  };
  CHECK(peak(0) >= kManyRows * kManyTokens * 4);
  CHECK(peak(64) <= kManyRows * kManyTokens * 4 / 8);
}

TEST_CASE("gradients of the loss carry grad_scale and whatever follows the loss") {
  for (const int64_t chunk_rows : {0, 2}) {
    const auto gradient = [&](float grad_scale, float factor) {
      Context context(small_context());
      context.update_step([&](StepState& state) { state.grad_scale = grad_scale; });
      const Tensor x = random_leaf(context, {kRows, kWidth}, 1);
      const Tensor w = random_leaf(context, {kPadded, kWidth}, 2);
      Tensor loss = linear_cross_entropy(x, w, from_host<int32_t>(context, kTargets, {kRows}),
                                         kVocab, {.chunk_rows = chunk_rows});
      if (factor != 1) loss = scale(loss, factor);
      backward(loss);
      return to_host<float>(x.grad());
    };
    const std::vector<float> plain = gradient(1, 1);
    std::vector<float> doubled = plain;
    for (float& value : doubled) value *= 2;
    CHECK(same_bits(gradient(2, 1), doubled));  // doubling is exact
    CHECK(same_bits(gradient(1, 2), doubled));
  }
}

TEST_CASE("the loss that leaves its logits alone has the bits of the one that does not") {
  for (const float factor : {1.0f, 3.0f}) {
    CAPTURE(factor);
    const auto run = [&](bool in_place) {
      Context context(small_context());
      const Tensor x = random_leaf(context, {kRows, kWidth}, 1);
      const Tensor w = random_leaf(context, {kPadded, kWidth}, 2);
      const Tensor targets = from_host<int32_t>(context, kTargets, {kRows});
      Tensor logits = linear(x, w);
      const std::vector<float> before = to_host<float>(logits);
      Tensor loss = in_place ? cross_entropy_(logits, targets, kVocab)
                             : cross_entropy(logits, targets, kVocab);
      CHECK(same_bits(to_host<float>(logits), before) != in_place);
      if (factor != 1) loss = scale(loss, factor);
      backward(loss);
      return std::vector{to_host<float>(loss), to_host<float>(x.grad()), to_host<float>(w.grad())};
    };
    const auto want = run(true), got = run(false);
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
  }
}

TEST_CASE("the loss that leaves its logits alone takes views, leaves and what was saved before") {
  Context context(small_context());
  const Tensor targets = from_host<int32_t>(context, kTargets, {kRows});
  Tensor leaf = random_leaf(context, {kRows, kPadded}, 1);
  CHECK(contains(message_of<AutogradError>([&] { cross_entropy_(leaf, targets, kVocab); }),
                 "is a leaf"));
  const Tensor square = mul(leaf, leaf);
  backward(add(cross_entropy(leaf, targets, kVocab), sum(square)));
  const std::vector<float> both = to_host<float>(leaf.grad());
  leaf_state(leaf).has_value = false;
  const Tensor view = reshape(reshape(leaf, {kRows * kPadded}), {kRows, kPadded});
  backward(cross_entropy(view, targets, kVocab));
  const std::vector<float> alone = to_host<float>(leaf.grad()), values = to_host<float>(leaf);
  for (size_t i = 0; i < both.size(); ++i) {
    CHECK(std::abs(both[i] - (alone[i] + 2 * values[i])) <= 1e-6f * std::abs(both[i]) + 1e-7f);
  }
  const Inference inference(context);
  CHECK(same_bits(to_host<float>(cross_entropy(leaf, targets, kVocab)),
                  to_host<float>(cross_entropy_(leaf, targets, kVocab))));
  CHECK(same_bits(to_host<float>(leaf), values));
}

TEST_CASE("a tensor that was saved before the loss overwrote it is refused") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {kRows, kWidth}, 1);
  const Tensor w = random_leaf(context, {kPadded, kWidth}, 2);
  Tensor logits = linear(x, w);
  const Tensor square = mul(logits, logits);
  const Tensor loss =
      cross_entropy_(logits, from_host<int32_t>(context, kTargets, {kRows}), kVocab);
  CHECK(contains(message_of<AutogradError>(
                     [&] { backward(square, full(context, square.shape(), DType::kF32, 1)); }),
                 "changed in place"));
}

TEST_CASE("embedding looks rows up and adds gradients where ids repeat") {
  Context context(small_context());
  const Tensor table = leaf(context, {3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor positions = leaf(context, {4, 2}, {10, 20, 30, 40, 50, 60, 70, 80});
  const std::vector<int32_t> ids = {2, 0, 2, 2};
  const Tensor y = embedding(from_host<int32_t>(context, ids, {2, 2}), table, positions, 1);
  CHECK(to_host<float>(y) == std::vector<float>{35, 46, 51, 62, 35, 46, 55, 66});
  const std::vector<float> dy = {1, 2, 3, 4, 5, 6, 7, 8};
  backward(y, from_host<float>(context, dy, {2, 2, 2}));
  CHECK(to_host<float>(table.grad()) == std::vector<float>{3, 4, 0, 0, 13, 16});
  CHECK(to_host<float>(positions.grad()) == std::vector<float>{0, 0, 6, 8, 10, 12, 0, 0});
}

TEST_CASE("an id outside the table and a target outside the vocabulary are errors that name them") {
  Context context(small_context());
  const Tensor table = random_leaf(context, {3, 2}, 1);
  const std::vector<int32_t> ids = {0, 3};
  const auto bad_id = message_of<DataError>([&] {
    embedding(from_host<int32_t>(context, ids, {1, 2}), table);
  });
  CHECK(contains(bad_id, "3"));
  Tensor logits = full(context, {1, 4}, DType::kF32, 0);
  const std::vector<int32_t> target = {4};
  CHECK(contains(message_of<DataError>(
                     [&] { cross_entropy_(logits, from_host<int32_t>(context, target, {1}), 4); }),
                 "4"));
}

TEST_CASE("dropout drops the same elements in backward, and however the batch is cut") {
  Context context(small_context());
  const auto at_sample = [&](uint64_t sample) {
    context.update_step([&](StepState& state) { state.sample = sample; });
  };
  const Tensor x = random_leaf(context, {4, 1000}, 1);
  at_sample(6);
  const Tensor y = dropout(x, 0.25f, 3);
  backward(y, full(context, y.shape(), DType::kF32, 1));
  const std::vector<float> in = to_host<float>(x), out = to_host<float>(y),
                           grad = to_host<float>(x.grad());
  int64_t dropped = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool kept = grad[i] != 0;
    dropped += kept ? 0 : 1;
    REQUIRE(out[i] == (kept ? in[i] * grad[i] : 0));
    if (kept) REQUIRE(grad[i] == Approx(1 / 0.75).epsilon(1e-6));
  }
  // 4000 draws with a probability of 1/4 give 1000, with a standard deviation of 27. The limit is
  // five deviations.
  CHECK(std::abs(dropped - 1000) < 137);

  at_sample(8);  // the second half of the samples, computed without the first half
  const std::vector<float> half(in.begin() + 2000, in.end());
  const Tensor late = dropout(from_host<float>(context, half, {2, 1000}), 0.25f, 3);
  CHECK(same_bits(to_host<float>(late), std::vector<float>(out.begin() + 2000, out.end())));
  at_sample(8);
  const Tensor other = dropout(from_host<float>(context, half, {2, 1000}), 0.25f, 4);
  CHECK_FALSE(same_bits(to_host<float>(other), to_host<float>(late)));
}

TEST_CASE("backward runs under the step values of its own forward") {
  const auto gradients = [](bool interleaved) {
    Context context(small_context());
    const auto begin = [&](uint64_t sample) {
      context.update_step([&](StepState& state) {
        state.sample = sample;
        state.grad_scale = float(sample + 1);
      });
    };
    const Tensor x = random_leaf(context, {kRows, kWidth}, 1);
    const Tensor w = random_leaf(context, {kPadded, kWidth}, 2);
    const auto forward = [&] {
      return linear_cross_entropy(dropout(x, 0.5f, 1), w,
                                  from_host<int32_t>(context, kTargets, {kRows}), kVocab,
                                  {.chunk_rows = 2});
    };
    begin(0);
    const Tensor first = forward();
    if (!interleaved) backward(first);
    begin(9);
    const Tensor second = forward();
    if (interleaved) backward(first);
    backward(second);
    return to_host<float>(x.grad());
  };
  CHECK(same_bits(gradients(true), gradients(false)));
}

TEST_CASE("dropout in a loop that does not number samples has another mask in each micro-batch") {
  const auto masks = [](bool resumed) {
    Context context(small_context());
    std::vector<std::vector<float>> all;
    for (int64_t step = resumed ? 1 : 0; step < 2; ++step) {
      context.update_step([&](StepState& state) {
        if (state.step == uint64_t(step)) return;
        state.step = uint64_t(step);  // sets the step, as prepare() of optimizers does
        state.sample = context.autograd().first_sample;
      });
      for (int micro = 0; micro < 2; ++micro) {
        const Tensor x = leaf(context, {2, 500}, std::vector<float>(1000, 1));
        const Tensor y = dropout(x, 0.5f, 3);
        all.push_back(to_host<float>(y));
        backward(sum(y));
        CHECK(same_bits(to_host<float>(x.grad()), all.back()));
      }
    }
    return all;
  };
  const auto all = masks(false), resumed = masks(true);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k) CHECK_FALSE(same_bits(all[i], all[k]));
  }
  CHECK(resumed == std::vector(all.begin() + 2, all.end()));
}

}  // namespace shale::test
