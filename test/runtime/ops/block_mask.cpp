// Compares attention with a BlockMask, and its gradients, with a dense reference in f64.
#include "shale/runtime/ops/block_mask.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/attention.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ref_attention.h"

namespace shale::test {
namespace {

constexpr int64_t kFirstHead = 3, kSize = 8;

bool sees(int64_t head, int64_t query, int64_t key) {
  return key == query || key == query - 1 - head % 2;
}

}  // namespace

// Uses the last two heads of a layer, and also mask blocks of twice the kernels' block size.
TEST_CASE("attention with a block mask is dense attention with that mask") {
  const int64_t parts = GENERATE(1, 2), tokens = 300 * parts;
  Context context(small_context());
  const auto mask = std::make_shared<const BlockMask>(
      BlockMask::Options{.block = 128 * parts, .by_head = true}, sees, /*key_blocks=*/3);
  const AttentionShape shape{.queries = tokens,
                             .keys = tokens,
                             .heads = 2,
                             .kv_heads = 2,
                             .head_size = kSize,
                             .causal = true,
                             .scale = 1 / std::sqrt(double(kSize)),
                             .sees_block = [=](int64_t head, int64_t query, int64_t key) {
                               return sees(head + kFirstHead, query / parts, key / parts);
                             }};
  const auto values = [&](uint64_t seed) { return randn<float>(shape.q_count(), seed); };
  const Shape of_q = {1, tokens, 2, kSize};
  const Tensor q = leaf(context, of_q, values(1)), k = leaf(context, of_q, values(2));
  const Tensor v = leaf(context, of_q, values(3));
  const Tensor y = attention(q, k, v, {.blocks = mask, .first_head = kFirstHead});
  backward(y, from_host<float>(context, values(4), of_q));
  const RefAttention want = ref_attention(shape, to_f64(values(1)), to_f64(values(2)),
                                          to_f64(values(3)), to_f64(values(4)));
  const auto error = [](const Tensor& got, const Bounded& exact) {
    return error_over_bound(to_f64(to_host<float>(got)), exact);
  };
  CHECK(error(y, want.out) <= 1);
  CHECK(error(q.grad(), want.dq) <= 1);
  CHECK(error(k.grad(), want.dk) <= 1);
  CHECK(error(v.grad(), want.dv) <= 1);
}

TEST_CASE("calls that cut a block of queries are errors, and so are odd blocks") {
  Context context(small_context());
  const BlockMask mask({}, sees, 9);
  CHECK(contains(message_of<ShapeError>([&] { mask.lists(context, {.queries = 60, .keys = 150}); }),
                 "60 queries of a block mask begin at token 90, expected a multiple of 128"));
  // One block of the mask is two blocks of the kernels.
  CHECK(mask.lists(context, {.queries = 3, .keys = 250}).keys.numel() == 2);
  CHECK(contains(message_of<ConfigError>([] { BlockMask({.block = 64}, sees, 9); }),
                 "a block has 64 tokens, expected a multiple of 128"));
}

}  // namespace shale::test
