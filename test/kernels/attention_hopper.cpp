// Tests Hopper's attention kernels, on the emulator and on a GPU of compute capability 9.0 if there
// is one. Sizes of tiles:
// - forward: 128 or 192 queries; 64, 96 or 128 keys
// - backward by keys: 128 keys; 64 or 128 queries (64 of both for heads of 192 and 256)
// - backward by queries: 128 queries; 48, 64 or 128 keys
//
// In forward, two thread blocks process all tiles.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "shale/test/kernels/attention_check.h"
#include "shale/test/support/emulator.h"

namespace shale::test {
namespace {

std::vector<Exec> hopper_devices() {
  return only_hopper(attention_variants());
}

template <typename T>
void check_on_hopper(const AttentionShape& shape) {
  check_on<T>(hopper_devices(), shape);
}

// Writes NaN beyond the first `used` rows of each sequence.
template <typename T>
void poison_rows(std::vector<T>& values, int64_t batch, int64_t length,
                 const std::vector<int32_t>& used) {
  const T nan{std::numeric_limits<float>::quiet_NaN()};
  const auto size = static_cast<int64_t>(values.size()) / batch;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t begin = b * size + used[size_t(b)] * (size / length);
    std::fill(values.begin() + begin, values.begin() + (b + 1) * size, nan);
  }
}

}  // namespace

// Cases: one query; exactly one tile of each kind; odd numbers of key tiles; ragged key tiles;
// fewer and more key tiles than pipeline stages; head groups; more queries than keys, so that whole
// query tiles see no key; more keys than queries.
TEMPLATE_TEST_CASE("Hopper's attention agrees with f64 in every number of tiles", "[attention]",
                   bf16, f16) {
  const int64_t head_size = GENERATE(64, 128, 192, 256);
  const bool causal = GENERATE(true, false);
  // f16 runs the code of bf16, and the emulator is slow.
  if constexpr (std::is_same_v<TestType, f16>) {
    if (causal) check_on_hopper<f16>(shape_of(1, 257, 257, 1, 1, head_size, causal));
    return;
  }
  check_on_hopper<TestType>(shape_of(1, 257, 257, 2, 2, head_size, causal));
  check_on_hopper<TestType>(shape_of(2, 1, 1, 1, 1, head_size, causal));
  check_on_hopper<TestType>(shape_of(1, 192, 128, 1, 1, head_size, causal));
  check_on_hopper<TestType>(shape_of(1, 70, 500, 2, 1, head_size, causal));
  check_on_hopper<TestType>(shape_of(1, 330, 100, 1, 1, head_size, causal));
}

// With heads of 96, half of the last box of columns is zeros. In this shape the last query tiles
// see no key.
TEST_CASE("Hopper's attention with heads of 96 agrees with f64", "[attention]") {
  check_on_hopper<bf16>(shape_of(1, 257, 257, 1, 1, 96, true));
  check_on_hopper<bf16>(shape_of(1, 70, 250, 2, 1, 96, false));
  check_on_hopper<bf16>(shape_of(1, 330, 40, 1, 1, 96, true));
}

// Scores spread over 60 powers of two. In most tiles, some scores exceed the maximum that has been
// subtracted so far.
TEST_CASE("Hopper's forward agrees with f64 where scores rise from tile to tile", "[attention]") {
  const int64_t head_size = GENERATE(64, 128);
  const AttentionInputs<bf16> in(shape_of(1, 100, 700, 1, 1, head_size, false), 25, 3.);
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(describe(exec), head_size);
    check_against_f64(exec, in);
  }
}

// Puts NaN and infinite scores through both ways of computing exponentials: by FMA and by the
// special-function unit.
TEST_CASE("a NaN or an infinity in Hopper's attention reaches all that see it", "[attention]") {
  const float bad =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const AttentionShape shape = shape_of(1, 70, 300, 8, 8, 64, false);
  AttentionInputs<bf16> in(shape, 26);
  for (int64_t head = 0; head < shape.heads; ++head) {
    const int64_t key = 17 * head;  // this key is in a tile that needs no mask
    in.k[size_t((key * shape.heads + head) * shape.head_size)] = bf16(bad);
    for (int64_t query = 0; query < shape.queries; ++query) {
      in.q[size_t((query * shape.heads + head) * shape.head_size)] = bf16(1.f);
    }
  }
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(describe(exec), bad);
    const AttentionResults<bf16> got = run_attention(exec, in);
    CHECK(std::ranges::all_of(got.lse, [](float x) { return !std::isfinite(x); }));
    CHECK(std::ranges::all_of(got.out, [](bf16 x) { return std::isnan(to_f32(x)); }));
  }
}

TEST_CASE("Hopper's attention keeps what lies beyond a sequence's end out of it", "[attention]") {
  const int64_t head_size = GENERATE(64, 96, 128, 192, 256);
  const bool causal = GENERATE(true, false);
  const AttentionShape shape = shape_of(4, 200, 260, 2, 1, head_size, causal);
  const SequenceLengths lengths{{200, 33, 0, 129}, {260, 150, 12, 0}};
  AttentionInputs<bf16> in(shape, 22);
  poison_rows(in.q, shape.batch, shape.queries, lengths.queries);
  poison_rows(in.dout, shape.batch, shape.queries, lengths.queries);
  poison_rows(in.k, shape.batch, shape.keys, lengths.keys);
  poison_rows(in.v, shape.batch, shape.keys, lengths.keys);
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(describe(exec), describe(shape));
    const AttentionResults<bf16> all = run_attention(exec, in, lengths);
    for (int64_t b = 0; b < shape.batch; ++b) {
      AttentionInputs<bf16> alone =
          sequence_of(in, b, lengths.queries[size_t(b)], lengths.keys[size_t(b)]);
      const RefAttention want = alone.reference(exec.device);
      const AttentionResults<bf16> got = sequence_of(all, shape, b);
      const auto starts_with = [](const std::vector<bf16>& values, const Bounded& head) {
        const auto count = static_cast<std::ptrdiff_t>(head.value.size());
        CHECK(error_over_bound(to_f64(std::vector<bf16>(values.begin(), values.begin() + count)),
                               head) <= 1);
        CHECK(std::all_of(values.begin() + count, values.end(),
                          [](bf16 x) { return to_f32(x) == 0; }));
      };
      starts_with(got.out, want.out);
      starts_with(got.dq, want.dq);
      starts_with(got.dk, want.dk);
      starts_with(got.dv, want.dv);
    }
  }
}

TEST_CASE("Hopper's attention reads slices of one tensor and writes rows of any alignment",
          "[attention]") {
  const int64_t head_size = GENERATE(64, 128, 192, 256);
  const AttentionShape shape = shape_of(2, 140, 140, 2, 2, head_size);
  const AttentionInputs<bf16> in(shape, 23);
  const int64_t row = 3 * shape.heads * head_size, odd = shape.heads * head_size + 3;
  const int64_t rows = shape.batch * shape.queries;
  std::vector<bf16> packed(size_t(rows * row));
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<bf16>* arrays[] = {&in.q, &in.k, &in.v};
    for (int64_t i = 0; i < row; ++i) {
      const int64_t width = shape.heads * head_size;
      packed[size_t(r * row + i)] = (*arrays[i / width])[size_t(r * width + i % width)];
    }
  }
  for (const Exec& exec : hopper_devices()) {
    if (!exec.deterministic) continue;
    CAPTURE(describe(exec), head_size);
    const AttentionResults<bf16> want = run_attention(exec, in);
    const DeviceArray<bf16> qkv(exec, packed), dout(exec, in.dout), out(exec, rows * odd),
        dq(exec, rows * odd), dk(exec, rows * odd), dv(exec, rows * odd);
    const DeviceArray<float> lse(exec, shape.lse_count());
    const auto slice = [&](int64_t which) {
      return qkv.view(q_shape(shape), {shape.queries * row, row, head_size, 1},
                      which * shape.heads * head_size);
    };
    const auto unaligned = [&](const DeviceArray<bf16>& array) {
      return array.view(q_shape(shape), {shape.queries * odd, odd, head_size, 1}, 1);
    };
    const auto same = [&](const DeviceArray<bf16>& array, const std::vector<bf16>& values) {
      const std::vector<bf16> got = array.download();
      for (int64_t r = 0; r < rows; ++r) {
        const auto *from = values.data() + r * shape.heads * head_size,
                   *at = got.data() + 1 + r * odd;
        if (!std::equal(from, from + shape.heads * head_size, at,
                        [](bf16 a, bf16 b) { return a.bits == b.bits; })) {
          return false;
        }
      }
      return array.margins_intact();
    };
    kernels::AttentionFwdArgs fwd{slice(0),
                                  slice(1),
                                  slice(2),
                                  unaligned(out),
                                  lse.view({shape.batch, shape.heads, shape.queries}),
                                  static_cast<float>(shape.scale),
                                  shape.causal};
    kernels::attention_fwd(exec, fwd);
    CHECK(same(out, want.out));
    // `out` is aligned here: otherwise backward would add over rows in another order.
    const DeviceArray<bf16> dense_out(exec, want.out);
    fwd.out = dense_out.view(q_shape(shape));
    kernels::attention_bwd(
        exec, {fwd.q, fwd.k, fwd.v, fwd.out, fwd.lse, dout.view(q_shape(shape)), unaligned(dq),
               unaligned(dk), unaligned(dv), fwd.scale, fwd.causal});
    CHECK(same(dq, want.dq));
    CHECK(same(dk, want.dk));
    CHECK(same(dv, want.dv));
  }
}

// Compares all results, except dQ where atomics add it.
TEST_CASE("Hopper's attention has the same bits in every order of threads", "[attention]") {
  const int64_t head_size = GENERATE(64, 128, 192, 256);
  const AttentionInputs<bf16> in(shape_of(1, 200, 300, 2, 1, head_size), 24);
  const auto& orders = emulator_orders();
  std::vector<float> first;
  for (const auto& options : {orders[0], orders[1], orders[4]}) {
    CAPTURE(describe(options), head_size);
    const auto emulator = emulator_with_kernels(options);
    Exec exec = emulator->exec();
    AttentionResults<bf16> fast = run_attention(exec, in);
    exec.deterministic = true;
    const AttentionResults<bf16> got = run_attention(exec, in);
    if (first.empty()) first = got.all();
    CHECK(same_bits(got.all(), first));
    fast.dq = got.dq;
    CHECK(same_bits(fast.all(), first));
  }
}

}  // namespace shale::test
