// Tests attention whose queries do not see the first keys: sliding windows, and packed documents.
#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/test/kernels/attention_check.h"

namespace shale::test {
namespace {

AttentionShape windowed(AttentionShape shape, int64_t window) {
  shape.window = window;
  return shape;
}

// Gives a shape documents of these lengths; the first one starts before the batch's first query.
AttentionShape of_documents(AttentionShape shape, const std::vector<int64_t>& lengths) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    int64_t begin = 0, document = b;
    for (int64_t i = 0; i < shape.queries; ++i) {
      const int64_t key = i + shape.keys - shape.queries;
      while (key >= begin + lengths[size_t(document) % lengths.size()]) {
        begin += lengths[size_t(document++) % lengths.size()];
      }
      shape.first_keys.push_back(static_cast<int32_t>(begin));
    }
  }
  return shape;
}

}  // namespace

// Cases: windows smaller than a vector, than a tile and than a block of queries, and not multiples
// of these sizes; documents of one token and of several tiles; windows with documents; few queries,
// as in generation; head groups.
TEMPLATE_TEST_CASE("attention with hidden keys agrees with f64 on the CPU", "[kernels][attention]",
                   float, bf16) {
  for (const int64_t window : {1, 2, 7, 64, 65, 130, 299, 300, 1000}) {
    check_on_cpu<TestType>(windowed(shape_of(1, 300, 300, 2, 1, 24), window));
    check_on_cpu<TestType>(windowed(shape_of(8, 70, 200, 1, 1, 16), window));
    check_on_cpu<TestType>(windowed(shape_of(2, 3, 300, 4, 2, 20), window));
    check_on_cpu<TestType>(windowed(shape_of(1, 90, 60, 1, 1, 16), window));
  }
  const std::vector<int64_t> lengths = {1, 90, 3, 17, 130, 1, 1};
  for (const bool causal : {true, false}) {
    check_on_cpu<TestType>(of_documents(shape_of(3, 300, 300, 2, 1, 24, causal), lengths));
    check_on_cpu<TestType>(of_documents(shape_of(2, 4, 300, 4, 2, 20, causal), lengths));
  }
  check_on_cpu<TestType>(windowed(of_documents(shape_of(2, 280, 300, 2, 2, 24), lengths), 40));
}

TEMPLATE_TEST_CASE("attention with hidden keys agrees with f64 on GPUs", "[kernels][attention]",
                   float, bf16) {
  const std::vector<int64_t> lengths = {1, 90, 3, 17, 130, 1, 1};
  if constexpr (std::is_same_v<TestType, float>) {
    check_on_gpus<float>(windowed(shape_of(1, 100, 140, 2, 1, 64), 50));
    check_on_gpus<float>(of_documents(shape_of(1, 140, 140, 1, 1, 80), lengths));
    return;
  }
  // Hopper has its own kernels for all of these head sizes.
  const int64_t head_size = GENERATE(64, 96, 128, 192, 256);
  check_on_gpus<TestType>(windowed(shape_of(1, 420, 420, 1, 1, head_size), 70));
  check_on_gpus<TestType>(windowed(shape_of(1, 200, 330, 2, 1, head_size), 3));
  check_on_gpus<TestType>(of_documents(shape_of(2, 300, 300, 1, 1, head_size), lengths));
  check_on_gpus<TestType>(of_documents(shape_of(1, 130, 260, 2, 1, head_size, false), lengths));
}

TEST_CASE("a window has the bits of the first keys that it stands for", "[kernels][attention]") {
  const AttentionShape plain = shape_of(2, 150, 190, 2, 1, 64);
  AttentionShape given = plain;
  const AttentionShape window = windowed(plain, 45);
  for (int64_t b = 0; b < plain.batch; ++b) {
    for (int64_t i = 0; i < plain.queries; ++i) {
      // A negative number hides no key.
      given.first_keys.push_back(static_cast<int32_t>(i + plain.keys - plain.queries + 1 - 45));
    }
  }
  for (const Exec& exec : reproducible_devices()) {
    CAPTURE(describe(exec));
    const AttentionInputs<bf16> one(window, 32), other(given, 32);
    CHECK(same_bits(run_attention(exec, one).all(), run_attention(exec, other).all()));
    // A window of 190 tokens, the number of keys, hides no key and gives the bits of plain
    // attention.
    const AttentionInputs<bf16> wide(windowed(plain, 190), 32), all(plain, 32);
    CHECK(same_bits(run_attention(exec, wide).all(), run_attention(exec, all).all()));
  }
}

TEST_CASE("runs of a sequence's tokens have the bits of the first keys that they stand for",
          "[kernels][attention]") {
  // Each call gets two chunks of 48 tokens of a longer sequence: the second and the seventh, or the
  // first and the last.
  constexpr int64_t kRun = 48;
  const kernels::TokenPlaces own{.run = kRun, .first = {48, 288}};
  const kernels::TokenPlaces others{.run = kRun, .first = {0, 336}};
  struct Call {
    kernels::TokenPlaces queries, keys;
    int64_t query_runs, key_runs;
    bool causal;
  };
  const Call calls[] = {
      {own, own, 2, 2, true}, {own, others, 2, 1, false}, {others, own, 2, 2, false}};
  for (const Call& call : calls) {
    for (const int64_t window : {7, 60, 300}) {
      AttentionShape plain =
          shape_of(2, call.query_runs * kRun, call.key_runs * kRun, 2, 1, 64, call.causal);
      AttentionShape given = plain;
      plain.window = window;
      for (int64_t i = 0; i < plain.batch * plain.queries; ++i) {
        const int64_t place = call.queries.first[i % plain.queries / kRun] + i % kRun;
        int32_t hidden = 0;
        for (int64_t key = 0; key < plain.keys; ++key) {
          hidden += call.keys.first[key / kRun] + key % kRun < place + 1 - window;
        }
        given.first_keys.push_back(hidden);
      }
      for (const Exec& exec : reproducible_devices()) {
        CAPTURE(describe(exec), window, call.causal);
        const AttentionInputs<bf16> one(plain, 35), other(given, 35);
        const auto got = run_attention(exec, one, {}, kernels::AttentionTile::kOfHeadSize,
                                       {call.queries, call.keys});
        CHECK(same_bits(got.all(), run_attention(exec, other).all()));
      }
    }
  }
}

TEST_CASE("with lengths a window ends at the sequence's own corner", "[kernels][attention]") {
  const AttentionShape shape = windowed(shape_of(3, 75, 140, 2, 1, 32), 20);
  const SequenceLengths lengths{{75, 33, 0}, {140, 64, 12}};
  const AttentionInputs<float> in(shape, 33);
  for (const Exec& exec : reproducible_devices()) {
    const AttentionResults<float> all = run_attention(exec, in, lengths);
    for (int64_t b = 0; b < shape.batch; ++b) {
      CAPTURE(describe(exec), b);
      const auto alone = sequence_of(in, b, lengths.queries[size_t(b)], lengths.keys[size_t(b)]);
      const AttentionResults<float> got = sequence_of(all, shape, b);
      const AttentionResults<float> want = run_attention(exec, alone);
      const auto starts_with = [](const std::vector<float>& values,
                                  const std::vector<float>& head) {
        const auto end = values.begin() + static_cast<std::ptrdiff_t>(head.size());
        return same_bits(std::vector<float>(values.begin(), end), head);
      };
      CHECK(starts_with(got.out, want.out));
      CHECK(starts_with(got.dq, want.dq));
      CHECK(starts_with(got.dk, want.dk));
      CHECK(starts_with(got.dv, want.dv));
    }
  }
}

TEST_CASE("hidden keys change nothing for those that do not see them", "[kernels][attention]") {
  const AttentionShape shape = windowed(shape_of(1, 200, 200, 1, 1, 64), 30);
  const AttentionInputs<float> in(shape, 34);
  AttentionInputs<float> other = in;
  // With a window of 30, keys before 100 are seen only by queries before 129.
  const size_t row = 64, cut = 100;
  for (size_t i = 0; i < cut * row; ++i) other.k[i] += 1, other.v[i] -= 1;
  for (const Exec& exec : attention_devices()) {
    CAPTURE(describe(exec));
    AttentionResults<float> a = run_attention(exec, in), b = run_attention(exec, other);
    const auto drop = [](std::vector<float>& values, size_t count) {
      values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
    };
    CHECK_FALSE(same_bits(a.out, b.out));
    drop(a.out, 129 * row), drop(b.out, 129 * row);
    CHECK(same_bits(a.out, b.out));
  }
}

// Tiles of keys that no query sees contain NaN, which would spread through any GEMM that reads
// them. Documents are as long as the largest tile. The first of the three documents has no queries.
TEMPLATE_TEST_CASE("tiles of other documents are neither computed nor read", "[kernels][attention]",
                   float, bf16) {
  constexpr int64_t kDocument = 128;
  // In 16 bits, heads of 64 would have tiles of 96 keys on Hopper, which do not divide the
  // documents.
  constexpr int64_t kHeadSize = sizeof(TestType) == 2 ? 128 : 64;
  constexpr auto kRows = static_cast<std::ptrdiff_t>(kDocument * kHeadSize);
  const AttentionShape shape =
      of_documents(shape_of(1, 2 * kDocument, 3 * kDocument, 1, 1, kHeadSize), {kDocument});
  const AttentionInputs<TestType> whole(shape, 36);
  // Overwrites all rows of a document with NaN.
  const auto poison = [](std::vector<TestType>& rows, int64_t document) {
    std::fill_n(rows.begin() + document * kRows, kRows,
                TestType(std::numeric_limits<float>::quiet_NaN()));
  };
  AttentionInputs<TestType> unseen = whole;
  poison(unseen.k, 0), poison(unseen.v, 0);
  AttentionInputs<TestType> beside = unseen;
  poison(beside.k, 1), poison(beside.v, 1), poison(beside.q, 0), poison(beside.dout, 0);
  for (const Exec& exec : attention_variants()) {
    CAPTURE(describe(exec));
    const AttentionResults<TestType> want = run_attention(exec, whole);
    // Compares the results of all rows, except those of the first `queries` documents (for queries)
    // and the first `keys` documents (for keys).
    const auto agree = [&](const AttentionResults<TestType>& got, int64_t queries, int64_t keys) {
      const auto alike = [&](const std::vector<TestType>& a, const std::vector<TestType>& b,
                             int64_t documents) {
        const auto rest = [&](const std::vector<TestType>& x) {
          return std::vector<TestType>(x.begin() + documents * kRows, x.end());
        };
        return same_bits(rest(a), rest(b));
      };
      CHECK(alike(got.out, want.out, queries));
      CHECK(alike(got.dk, want.dk, keys));
      CHECK(alike(got.dv, want.dv, keys));
      // Without `deterministic`, GPUs add to dq in any order.
      if (exec.deterministic || !is_gpu(exec)) CHECK(alike(got.dq, want.dq, queries));
      CHECK(std::all_of(got.dq.begin() + queries * kRows, got.dq.end(),
                        [](TestType x) { return std::isfinite(to_f32(x)); }));
    };
    const AttentionResults<TestType> got = run_attention(exec, unseen);
    agree(got, 0, 0);
    CHECK(std::all_of(got.dk.begin(), got.dk.begin() + kRows,
                      [](TestType x) { return to_f32(x) == 0; }));
    const AttentionResults<TestType> rest = run_attention(exec, beside);
    agree(rest, 1, 2);
    CHECK(std::isnan(to_f32(rest.out.front())));
  }
}

TEST_CASE("windows and first keys that cannot be are errors", "[kernels][attention]") {
  const Exec exec = attention_devices().front();
  const auto message = [&](const AttentionShape& shape) {
    const AttentionInputs<float> in(shape, 35);
    return message_of<ShapeError>([&] { run_attention(exec, in); });
  };
  CHECK(contains(message(windowed(shape_of(1, 5, 7, 1, 1, 8), -1)),
                 "attention_fwd: window is -1, expected 0, or a number of keys and a causal mask"));
  CHECK(contains(message(windowed(shape_of(1, 5, 7, 1, 1, 8, /*causal=*/false), 3)),
                 "attention_fwd: window is 3 without a causal mask, expected 0"));
}

}  // namespace shale::test
