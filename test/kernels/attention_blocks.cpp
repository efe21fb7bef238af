// Tests block-sparse attention: blocks of queries see listed blocks of keys.
#include "shale/kernels/attention_blocks.h"

#include <algorithm>
#include <limits>

#include "shale/test/kernels/attention_check.h"

namespace shale::test {
namespace {

constexpr int64_t kBlock = kernels::kAttentionBlock;

using Sees = std::function<bool(int64_t head, int64_t query, int64_t key)>;

AttentionShape with_blocks(AttentionShape shape, const Sees& sees) {
  shape.sees_block = sees;
  return shape;
}

// Masks by block. Block numbers start at the first query or key of a call. With sees_ends, a query
// block sees the first key block and the key block of the same number. With sees_by_head, each head
// has another mask, and some heads see nothing.
bool sees_ends(int64_t, int64_t query, int64_t key) {
  return key == 0 || key == query;
}
bool sees_by_head(int64_t head, int64_t query, int64_t key) {
  return (head % 3 == 0 && key == query) || (head % 3 == 1 && (query + key) % 2 == 1);
}

}  // namespace

// Cases: ragged ends; one and several blocks; head groups with their own pattern; more keys than
// queries, as in chunked prefill; few queries, as in generation; few and many heads, for both
// backward schemes; combinations with windows, documents and a softcap.
TEMPLATE_TEST_CASE("attention of listed blocks agrees with f64 on the CPU", "[kernels][attention]",
                   float, bf16) {
  for (const Sees& sees : {Sees(sees_ends), Sees(sees_by_head)}) {
    for (const bool causal : {true, false}) {
      check_on_cpu<TestType>(with_blocks(shape_of(1, 430, 430, 4, 2, 24, causal), sees));
      check_on_cpu<TestType>(with_blocks(shape_of(2, 100, 310, 4, 4, 16, causal), sees));
      check_on_cpu<TestType>(with_blocks(shape_of(2, 3, 300, 6, 2, 20, causal), sees));
    }
    AttentionShape shape = with_blocks(shape_of(1, 400, 400, 3, 3, 16), sees);
    shape.softcap = 2;
    check_on_cpu<TestType>(shape);
    shape.window = 150;
    check_on_cpu<TestType>(shape);
    for (int32_t i = 0; i < 400; ++i) shape.first_keys.push_back(i / 90 * 90);
    check_on_cpu<TestType>(shape);
  }
}

TEMPLATE_TEST_CASE("attention of listed blocks agrees with f64 on GPUs", "[kernels][attention]",
                   float, bf16) {
  if constexpr (std::is_same_v<TestType, float>) {
    check_on_gpus<float>(with_blocks(shape_of(1, 260, 260, 1, 1, 64), sees_ends));
    check_on_gpus<float>(with_blocks(shape_of(1, 100, 300, 2, 1, 20), sees_by_head));
    return;
  }
  const int64_t head_size = GENERATE(64, 128, 200);  // Hopper has its own kernels for 64 and 128
  if (head_size == 200) {
    return check_on_gpus<TestType>(with_blocks(shape_of(1, 260, 260, 1, 1, head_size), sees_ends));
  }
  check_on_gpus<TestType>(with_blocks(shape_of(1, 140, 300, 3, 1, head_size, false), sees_by_head));
  AttentionShape shape = with_blocks(shape_of(1, 390, 390, 1, 1, head_size), sees_ends);
  shape.window = 170;
  check_on_gpus<TestType>(shape);
}

TEST_CASE("lists of all blocks have the bits of none", "[kernels][attention]") {
  const auto all = [](int64_t, int64_t, int64_t) { return true; };
  // A head size for which every GPU uses the same kernels.
  const AttentionShape plain = shape_of(1, 200, 300, 2, 1, 80);
  const AttentionInputs<bf16> in(plain, 42), listed(with_blocks(plain, all), 42);
  for (const Exec& exec : reproducible_devices()) {
    CAPTURE(describe(exec));
    CHECK(same_bits(run_attention(exec, in).all(), run_attention(exec, listed).all()));
  }
}

// Key blocks that no query sees contain NaN, which would spread through any GEMM that reads them.
TEST_CASE("blocks that nobody sees are neither computed nor read", "[kernels][attention]") {
  const auto not_the_second = [](int64_t, int64_t query, int64_t key) {
    return key != 1 && query != 2;
  };
  const int64_t head_size = 64;
  const AttentionShape shape = with_blocks(shape_of(1, 400, 400, 1, 1, head_size), not_the_second);
  AttentionInputs<bf16> in(shape, 43);
  const AttentionInputs<bf16> whole = in;
  const auto poison = [&](std::vector<bf16>& rows, int64_t block) {
    const auto begin = rows.begin() + block * kBlock * head_size;
    std::fill(begin, begin + kBlock * head_size, bf16(std::numeric_limits<float>::quiet_NaN()));
  };
  poison(in.k, 1), poison(in.v, 1), poison(in.q, 2);
  for (const Exec& exec : reproducible_devices()) {
    CAPTURE(describe(exec));
    const AttentionResults<bf16> got = run_attention(exec, in);
    CHECK(same_bits(got.all(), run_attention(exec, whole).all()));
    const auto is_zero = [&](const std::vector<bf16>& rows, int64_t block) {
      const auto begin = rows.begin() + block * kBlock * head_size;
      return std::all_of(begin, begin + kBlock * head_size,
                         [](bf16 x) { return to_f32(x) == 0.f; });
    };
    CHECK((is_zero(got.out, 2) && is_zero(got.dq, 2) && is_zero(got.dk, 1) && is_zero(got.dv, 1)));
    CHECK_FALSE(is_zero(got.dk, 0));
    CHECK(got.lse[2 * kBlock] == -std::numeric_limits<float>::infinity());
  }
}

TEST_CASE("lists of blocks that cannot be are errors", "[kernels][attention]") {
  const Exec exec = attention_devices().front();
  const AttentionShape shape = with_blocks(shape_of(1, 300, 300, 2, 1, 8), sees_ends);
  const AttentionInputs<float> in(shape, 44);
  CHECK(contains(message_of<ShapeError>([&] {
                   run_attention(exec, in, {{300}, {}});
                 }),
                 "attention_fwd: has blocks and q_lengths, expected one of them"));
  kernels::HostBlockLists host = block_lists_of(shape);
  host.key_begins.push_back(0);
  const DeviceBlockLists lists(exec, host);
  const DeviceArray<float> q(exec, in.q), k(exec, in.k), lse(exec, shape.lse_count());
  const kernels::AttentionFwdArgs args{.q = q.view(q_shape(shape)),
                                       .k = k.view(kv_shape(shape)),
                                       .v = k.view(kv_shape(shape)),
                                       .out = q.view(q_shape(shape)),
                                       .lse = lse.view({1, 2, 300}),
                                       .scale = 1,
                                       .causal = true,
                                       .blocks = lists.views()};
  CHECK(contains(message_of<ShapeError>([&] { kernels::attention_fwd(exec, args); }),
                 "attention_fwd: blocks.key_begins is "));
  const auto lists_of = [](const std::vector<int32_t>& keys) {
    return [keys](int64_t, int64_t) { return keys; };
  };
  CHECK(contains(message_of<InternalError>([&] {
                   kernels::make_block_lists(1, 2, 3, lists_of({1, 1}));
                 }),
                 "query block 0 lists key block 1 after 1, expected ascending key blocks below 3"));
  CHECK(contains(message_of<InternalError>([&] {
                   kernels::make_block_lists(1, 2, 3, lists_of({0, 3}));
                 }),
                 "lists key block 3 after 0"));
}

}  // namespace shale::test
