#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

constexpr int64_t kHeads = 2, kSize = 4;

// View of the first `length` tokens of sequence b in a batch.
Tensor part(const Tensor& x, int64_t b, int64_t length) {
  return contiguous(slice(slice(x, 0, b, b + 1), 1, 0, length));
}

}  // namespace

TEST_CASE("attention over padded sequences is attention over each without its padding") {
  const bool causal = GENERATE(false, true);
  const std::vector<int32_t> lengths = {7, 3, 1};
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    CAPTURE(to_string(options.device), causal);
    const Shape shape = {3, 7, kHeads, kSize};
    const Tensor q = random_leaf(context, shape, 1), k = random_leaf(context, shape, 2);
    const Tensor v = random_leaf(context, shape, 3), w = random_leaf(context, shape, 4).detach();
    const Tensor ids = from_host<int32_t>(context, lengths, {3});
    const Tensor y = attention(q, k, v, {.causal = causal, .q_lengths = ids, .k_lengths = ids});
    backward(sum(mul(y, w)));
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t n = lengths[size_t(b)];
      const auto as_leaf = [&](const Tensor& x) {
        return leaf(context, {1, n, kHeads, kSize}, to_host<float>(part(x.detach(), b, n)));
      };
      const Tensor qs = as_leaf(q), ks = as_leaf(k), vs = as_leaf(v);
      const Tensor ys = attention(qs, ks, vs, {.causal = causal});
      backward(sum(mul(ys, as_leaf(w).detach())));
      const auto expect_near = [](const Tensor& got, const Tensor& want) {
        // Allows the roundings of sums of up to 7 terms of order 1.
        CHECK(max_error(to_host<float>(got), to_f64(to_host<float>(want))) <= 2e-6);
      };
      expect_near(part(y.detach(), b, n), ys);
      expect_near(part(q.grad(), b, n), qs.grad());
      expect_near(part(k.grad(), b, n), ks.grad());
      expect_near(part(v.grad(), b, n), vs.grad());
      const std::vector<float> zeros(size_t((7 - n) * kHeads * kSize), 0.f);
      for (const Tensor& x : {y.detach(), q.grad(), k.grad(), v.grad()}) {
        CHECK(to_host<float>(contiguous(slice(slice(x, 0, b, b + 1), 1, n, 7))) == zeros);
      }
    }
  }
}

TEST_CASE("attention over documents in one sequence is attention over each alone") {
  constexpr int64_t kTokens = 9;
  const std::vector<int64_t> begins = {0, 4, 5};  // starts of three documents
  const std::vector<int32_t> first_keys = {0, 0, 0, 0, 4, 5, 5, 5, 5};
  const int64_t window = GENERATE(0, 2);
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    CAPTURE(to_string(options.device), window);
    const Shape shape = {1, kTokens, 3 * kHeads * kSize};
    const Tensor qkv = random_leaf(context, shape, 5);
    const Tensor w = random_leaf(context, {1, kTokens, kHeads * kSize}, 6).detach();
    const Tensor ids = from_host<int32_t>(context, first_keys, {1, kTokens});
    const Tensor y = packed_attention(qkv, kHeads, {.window = window, .first_keys = ids});
    backward(sum(mul(y, w)));
    for (size_t d = 0; d < begins.size(); ++d) {
      const int64_t begin = begins[d], end = d + 1 < begins.size() ? begins[d + 1] : kTokens;
      const auto document = [&](const Tensor& x) {
        return to_host<float>(contiguous(slice(x, 1, begin, end)));
      };
      const Tensor one = leaf(context, {1, end - begin, shape[2]}, document(qkv.detach()));
      const Tensor alone = packed_attention(one, kHeads, {.window = window});
      const Tensor weights = contiguous(slice(w, 1, begin, end));
      backward(sum(mul(alone, weights)));
      // Allows the roundings of sums of up to 4 terms of order 1.
      CHECK(max_error(document(y.detach()), to_f64(to_host<float>(alone))) <= 2e-6);
      CHECK(max_error(document(qkv.grad()), to_f64(to_host<float>(one.grad()))) <= 2e-6);
    }
  }
  Context context(small_context());
  const Tensor qkv = random_leaf(context, {2, 5, 3 * kHeads * kSize}, 1);
  const Tensor short_keys = from_host<int32_t>(context, std::vector<int32_t>(5), {1, 5});
  CHECK(message_of<ShapeError>([&] {
          packed_attention(qkv, kHeads, {.first_keys = short_keys});
        }) == "attention: first_keys is [1,5], expected [2,5]");
}

TEST_CASE("packed attention takes lengths too, and names those of another batch") {
  Context context(small_context());
  const Tensor qkv = random_leaf(context, {2, 5, 3 * kHeads * kSize}, 1);
  const Tensor ids = from_host<int32_t>(context, std::vector<int32_t>{5, 2}, {2});
  const Tensor y =
      packed_attention(qkv, kHeads, {.causal = true, .q_lengths = ids, .k_lengths = ids});
  const Tensor whole = packed_attention(qkv, kHeads);
  const auto padded = to_host<float>(y), plain = to_host<float>(whole);
  const size_t row = kHeads * kSize;
  // With the causal mask, attention ignores later tokens.
  for (size_t i = 0; i < 7 * row; ++i) CHECK(padded[i] == Approx(plain[i]).margin(1e-6));
  CHECK(
      std::all_of(padded.begin() + 7 * int64_t(row), padded.end(), [](float x) { return x == 0; }));
  backward(sum(y));
  CHECK(qkv.grad().shape() == qkv.shape());
  const Tensor three = from_host<int32_t>(context, std::vector<int32_t>{5, 2, 1}, {3});
  CHECK(message_of<ShapeError>([&] { packed_attention(qkv, kHeads, {.k_lengths = three}); }) ==
        "attention: k_lengths is [3], expected [2]");
}

}  // namespace shale::test
