#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/test/kernels/attention_run.h"
#include "shale/test/support/catch.h"

namespace shale {
namespace {

using test::AttentionInputs;
using test::AttentionResults;
using test::AttentionShape;
using test::RefAttention;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A packed tensor [B, T, 3, H, D], with views of q, k and v.
struct Packed {
  int64_t batch, length, heads, head_size;

  int64_t count() const { return batch * length * 3 * heads * head_size; }
  int64_t offset(int64_t which) const { return which * heads * head_size; }
  template <typename T>
  View slice(const test::DeviceArray<T>& array, int64_t which) const {
    const int64_t row = 3 * heads * head_size;
    return array.view({batch, length, heads, head_size}, {length * row, row, head_size, 1},
                      offset(which));
  }
  // Copies a dense slice into or out of packed values.
  template <typename T>
  void put(std::vector<T>& packed, const std::vector<T>& dense, int64_t which) const {
    each(which, [&](size_t at, size_t dense_at) { packed[at] = dense[dense_at]; });
  }
  template <typename T>
  std::vector<T> get(const std::vector<T>& packed, int64_t which) const {
    std::vector<T> dense(packed.size() / 3);
    each(which, [&](size_t at, size_t dense_at) { dense[dense_at] = packed[at]; });
    return dense;
  }

 private:
  template <typename Fn>
  void each(int64_t which, Fn&& fn) const {
    const int64_t width = heads * head_size;
    for (int64_t row = 0; row < batch * length; ++row) {
      for (int64_t c = 0; c < width; ++c) {
        fn(size_t(row * 3 * width + offset(which) + c), size_t(row * width + c));
      }
    }
  }
};

// Returns true if all values from index `begin` on equal `want`.
template <typename T>
bool all_are(const std::vector<T>& values, size_t begin, float want) {
  return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(begin), values.end(),
                     [&](const T& x) { return to_f32(x) == want; });
}

kernels::AttentionFwdArgs dense_args(const AttentionShape& s, const test::DeviceArray<float>& q,
                                     const test::DeviceArray<float>& kv,
                                     const test::DeviceArray<float>& lse) {
  return {.q = q.view(q_shape(s)),
          .k = kv.view(kv_shape(s)),
          .v = kv.view(kv_shape(s)),
          .out = q.view(q_shape(s)),
          .lse = lse.view({s.batch, s.heads, s.queries}),
          .scale = 1,
          .causal = false};
}

}  // namespace

TEMPLATE_TEST_CASE("attention has the same bits for any number of threads", "[kernels][attention]",
                   float, bf16) {
  // These shapes cover both backward schemes, and forward with few queries.
  const AttentionShape shape = GENERATE(AttentionShape{2, 150, 150, 4, 4, 32, true, 0.2},
                                        AttentionShape{1, 150, 190, 6, 3, 20, true, 0.2},
                                        AttentionShape{1, 3, 300, 4, 2, 64, false, 0.2});
  const AttentionInputs<TestType> in(shape, 5);
  const auto run = [&](const Exec& exec) { return test::run_attention(exec, in).all(); };
  CAPTURE(describe(shape));
  CHECK(test::same_bits_for_any_threads(test::devices().front(), run));
}

TEST_CASE("attention of a sequence does not depend on the rest of the batch",
          "[kernels][attention]") {
  for (const Exec& exec : test::reproducible_devices()) {
    CAPTURE(test::describe(exec));
    // On the CPU, backward of one sequence uses another algorithm than backward of the batch. Both
    // must add in the same order.
    const AttentionShape shape = test::is_gpu(exec)
                                     ? AttentionShape{2, 70, 70, 2, 1, 24, true, 0.3}
                                     : AttentionShape{4, 140, 170, 4, 2, 24, true, 0.3};
    const AttentionInputs<float> all(shape, 6);
    const AttentionResults<float> want = test::run_attention(exec, all);
    for (int64_t b = 0; b < shape.batch; ++b) {
      const AttentionInputs<float> one = test::sequence_of(all, b, shape.queries, shape.keys);
      const AttentionResults<float> got = test::run_attention(exec, one);
      CHECK(test::same_bits(got.all(), test::sequence_of(want, shape, b).all()));
    }
  }
}

TEMPLATE_TEST_CASE("sequences of different lengths are as if each were alone",
                   "[kernels][attention]", float, bf16) {
  const bool causal = GENERATE(true, false);
  const AttentionShape shape{4, 75, 140, 2, 1, 32, causal, 0.2};
  const test::SequenceLengths lengths{{75, 33, 0, 1000}, {140, 64, 12, -1}};
  AttentionInputs<TestType> in(shape, 12);
  AttentionInputs<TestType> poisoned = in;
  const auto queries_of = [&](int64_t b) {
    return std::clamp<int64_t>(lengths.queries[size_t(b)], 0, shape.queries);
  };
  const auto keys_of = [&](int64_t b) {
    return std::clamp<int64_t>(lengths.keys[size_t(b)], 0, shape.keys);
  };
  const TestType nan{std::numeric_limits<float>::quiet_NaN()};
  for (int64_t b = 0; b < shape.batch; ++b) {
    const auto poison = [&](std::vector<TestType>& values, int64_t used, int64_t length) {
      const int64_t size = static_cast<int64_t>(values.size()) / shape.batch, row = size / length;
      std::fill(values.begin() + b * size + used * row, values.begin() + (b + 1) * size, nan);
    };
    poison(poisoned.q, queries_of(b), shape.queries);
    poison(poisoned.dout, queries_of(b), shape.queries);
    poison(poisoned.k, keys_of(b), shape.keys);
    poison(poisoned.v, keys_of(b), shape.keys);
  }
  for (const Exec& exec : test::reproducible_devices()) {
    const AttentionResults<TestType> all = test::run_attention(exec, poisoned, lengths);
    for (int64_t b = 0; b < shape.batch; ++b) {
      CAPTURE(test::describe(exec), b);
      const AttentionResults<TestType> got = test::sequence_of(all, shape, b);
      const AttentionInputs<TestType> alone = test::sequence_of(in, b, queries_of(b), keys_of(b));
      const AttentionResults<TestType> want = test::run_attention(exec, alone);
      const auto starts_with = [](const auto& values, const auto& head) {
        using Values = std::decay_t<decltype(values)>;
        return test::same_bits(
            Values(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(head.size())),
            head);
      };
      CHECK(starts_with(got.out, want.out));
      CHECK(starts_with(got.dq, want.dq));
      CHECK(starts_with(got.dk, want.dk));
      CHECK(starts_with(got.dv, want.dv));
      CHECK(all_are(got.out, want.out.size(), 0));
      CHECK(all_are(got.dq, want.dq.size(), 0));
      CHECK(all_are(got.dk, want.dk.size(), 0));
      CHECK(all_are(got.dv, want.dv.size(), 0));
      for (int64_t h = 0; h < shape.heads; ++h) {
        for (int64_t i = 0; i < shape.queries; ++i) {
          const float lse = got.lse[size_t(h * shape.queries + i)];
          REQUIRE(lse ==
                  (i < queries_of(b) ? want.lse[size_t(h * queries_of(b) + i)] : -kInfinity));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("deterministic attention has the same bits in every order of threads",
                   "[kernels][attention]", float, bf16) {
  // Several key blocks add to each dQ; several heads and query tiles add to each dK and dV. The
  // emulated devices run the same kernels for heads of 80, in different orders of threads.
  const AttentionInputs<TestType> in({1, 140, 140, 2, 1, 80, true, 0.125}, 13);
  const std::vector<Exec> all = test::reproducible_devices();
  std::vector<float> first;
  for (const Exec& exec : all) {
    if (exec.device.type != DeviceType::kEmu) continue;
    const std::vector<float> got = test::run_attention(exec, in).all();
    if (first.empty()) first = got;
    CHECK(test::same_bits(got, first));
  }
}

TEMPLATE_TEST_CASE("attention on slices of [B,T,3,H,D] touches nothing else",
                   "[kernels][attention]", float, bf16) {
  // GPUs first pack rows of 40 bytes, but not rows of 128 bytes.
  const auto [length, head_size] =
      GENERATE(std::pair<int64_t, int64_t>{3, 20}, std::pair<int64_t, int64_t>{70, 64});
  const AttentionShape shape{2, length, length, 3, 3, head_size, true, 0.25};
  const AttentionInputs<TestType> in(shape, 7);
  const Packed packed{shape.batch, length, shape.heads, shape.head_size};
  std::vector<TestType> qkv_values(size_t(packed.count()));
  packed.put(qkv_values, in.q, 0), packed.put(qkv_values, in.k, 1), packed.put(qkv_values, in.v, 2);
  const std::vector<TestType> marker(size_t(packed.count()), TestType(7.f));
  for (const Exec& exec : test::reproducible_devices()) {
    CAPTURE(test::describe(exec));
    const AttentionResults<TestType> want = test::run_attention(exec, in);
    const test::DeviceArray<TestType> qkv(exec, qkv_values), dout(exec, in.dout);
    test::DeviceArray<TestType> grads(exec, marker), out(exec, marker);
    const test::DeviceArray<float> lse(exec, shape.lse_count());
    kernels::AttentionFwdArgs fwd{packed.slice(qkv, 0),
                                  packed.slice(qkv, 1),
                                  packed.slice(qkv, 2),
                                  packed.slice(out, 1),
                                  lse.view({shape.batch, shape.heads, length}),
                                  static_cast<float>(shape.scale),
                                  true};
    kernels::attention_fwd(exec, fwd);
    std::vector<TestType> want_out = marker;
    packed.put(want_out, want.out, 1);
    CHECK(test::same_bits(out.download(), want_out));

    // Writes one gradient at a time into the packed tensor, and checks that the other two keep
    // their values.
    for (int64_t which = 0; which < 3; ++which) {
      const test::DeviceArray<TestType> scratch(exec, packed.count());
      grads.upload(marker);
      kernels::AttentionBwdArgs bwd{fwd.q,
                                    fwd.k,
                                    fwd.v,
                                    fwd.out,
                                    fwd.lse,
                                    dout.view(q_shape(shape)),
                                    packed.slice(scratch, 0),
                                    packed.slice(scratch, 1),
                                    packed.slice(scratch, 2),
                                    fwd.scale,
                                    true};
      (which == 0 ? bwd.dq : which == 1 ? bwd.dk : bwd.dv) = packed.slice(grads, which);
      kernels::attention_bwd(exec, bwd);
      std::vector<TestType> want_grads = marker;
      packed.put(want_grads, which == 0 ? want.dq : which == 1 ? want.dk : want.dv, which);
      CHECK(test::same_bits(grads.download(), want_grads));
    }
  }
}

TEST_CASE("attention with scores of 1e4 neither overflows nor loses the sum",
          "[kernels][attention]") {
  const bool causal = GENERATE(false, true);
  const int64_t queries = GENERATE(2, 70);
  // q and k with a standard deviation of 40 give scores of 40^2 sqrt(64) = 1e4.
  const AttentionInputs<float> in({1, queries, 70, 2, 2, 64, causal, 1.}, 8, 40.);
  const RefAttention want = in.reference();
  for (const Exec& exec : test::attention_devices()) {
    CAPTURE(test::describe(exec));
    const AttentionResults<float> got = test::run_attention(exec, in);
    CHECK(test::error_over_bound(test::to_f64(got.out), want.out) <= 1);
    CHECK(test::error_over_bound(test::to_f64(got.lse), want.lse) <= 1);
    CHECK(test::error_over_bound(test::to_f64(got.dq), want.dq) <= 1);
    CHECK(test::error_over_bound(test::to_f64(got.dk), want.dk) <= 1);
    CHECK(test::error_over_bound(test::to_f64(got.dv), want.dv) <= 1);
  }
}

TEST_CASE("a query that sees no key gives zeros and takes no gradient", "[kernels][attention]") {
  // Tq > Tk: the first Tq - Tk queries come before all keys.
  const auto [queries, keys] = GENERATE(std::pair{100, 30}, std::pair{70, 0}, std::pair{4, 2});
  const AttentionShape shape{1, queries, keys, 2, 2, 16, true, 0.25};
  AttentionInputs<float> in(shape, 9);
  const size_t row = 2 * 16, blind = size_t(queries - keys);
  for (const Exec& exec : test::attention_devices()) {
    CAPTURE(test::describe(exec), queries, keys);
    const AttentionResults<float> got = test::run_attention(exec, in);
    for (size_t i = 0; i < blind * row; ++i) {
      REQUIRE(got.out[i] == 0);
      REQUIRE(got.dq[i] == 0);
    }
    for (size_t i = 0; i < blind; ++i) {
      REQUIRE(got.lse[i] == -kInfinity);
      REQUIRE(got.lse[size_t(queries) + i] == -kInfinity);
    }
    // Queries that see no key do not affect the gradients of keys.
    AttentionInputs<float> other = in;
    for (size_t i = 0; i < blind * row; ++i) other.q[i] = 100, other.dout[i] = 100;
    const AttentionResults<float> same = test::run_attention(exec, other);
    CHECK(test::same_bits(same.dk, got.dk));
    CHECK(test::same_bits(same.dv, got.dv));
  }
}

TEST_CASE("later keys change nothing for a causal query", "[kernels][attention]") {
  const AttentionShape shape{1, 100, 100, 2, 2, 24, true, 0.2};
  const AttentionInputs<float> in(shape, 10);
  AttentionInputs<float> other = in;
  const size_t row = 2 * 24, cut = 77;
  for (size_t i = cut * row; i < in.k.size(); ++i) other.k[i] += 1, other.v[i] -= 1;
  for (const Exec& exec : test::attention_devices()) {
    CAPTURE(test::describe(exec));
    AttentionResults<float> a = test::run_attention(exec, in), b = test::run_attention(exec, other);
    CHECK_FALSE(test::same_bits(a.out, b.out));
    a.out.resize(cut * row), b.out.resize(cut * row);
    CHECK(test::same_bits(a.out, b.out));
  }
}

TEST_CASE("a NaN in attention's inputs reaches its results", "[kernels][attention]") {
  const int64_t queries = GENERATE(2, 70);
  const AttentionShape shape{1, queries, 70, 1, 1, 16, false, 0.25};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Exec& exec : test::attention_devices()) {
    CAPTURE(test::describe(exec), queries);
    AttentionInputs<float> in(shape, 11);
    in.k[5 * 16 + 3] = nan;
    const AttentionResults<float> got = test::run_attention(exec, in);
    for (const float x : got.out) REQUIRE(std::isnan(x));
    for (const float x : got.dq) REQUIRE(std::isnan(x));
  }
}

TEST_CASE("attention rejects wrong arguments", "[kernels][attention]") {
  using test::contains;
  using test::message_of;
  const size_t device = GENERATE(range(size_t{0}, test::attention_devices().size()));
  const Exec exec = test::attention_devices()[device];
  CAPTURE(to_string(exec.device));
  const AttentionShape shape{2, 5, 7, 4, 2, 8, false, 1};
  const test::DeviceArray<float> q(exec, shape.q_count()), kv(exec, shape.kv_count());
  const test::DeviceArray<float> lse(exec, shape.lse_count());
  const kernels::AttentionFwdArgs good = dense_args(shape, q, kv, lse);
  kernels::AttentionFwdArgs a = good;
  const auto shape_error = [&] {
    return message_of<ShapeError>([&] { kernels::attention_fwd(exec, a); });
  };
  const auto dtype_error = [&] {
    return message_of<DTypeError>([&] { kernels::attention_fwd(exec, a); });
  };

  a.k.shape = a.v.shape = {2, 7, 3, 8};
  CHECK(contains(shape_error(), "attention_fwd: k is fp32[2,7,3,8], expected a number of heads"));
  a = good, a.v.shape = {2, 6, 2, 8};
  CHECK(contains(shape_error(), "attention_fwd: v is fp32[2,6,2,8], expected shape [2,7,2,8]"));
  a = good, a.k.shape = {1, 7, 2, 8};
  CHECK(contains(shape_error(), "attention_fwd: k is fp32[1,7,2,8], expected shape [2,7,2,8]"));
  a = good, a.out.shape = {2, 5, 8, 4};
  CHECK(contains(shape_error(), "attention_fwd: out is fp32[2,5,8,4], expected shape [2,5,4,8]"));
  a = good, a.lse.shape = {2, 5, 4};
  CHECK(contains(shape_error(), "attention_fwd: lse is fp32[2,5,4], expected shape [2,4,5]"));
  a = good, a.q.strides = {160, 4, 1, 4};
  CHECK(contains(shape_error(), "expected stride 1 in the last dimension"));
  a = good, a.q = q.view({2, 5, 32});
  CHECK(contains(shape_error(), "attention_fwd: q is fp32[2,5,32], expected shape [B,Tq,H,D]"));
  a = good, a.q = q.view({1, 1, 1, 320});
  CHECK(contains(shape_error(), "expected a last dimension from 1 to 256"));
  a = good, a.scale = 0;
  CHECK(contains(shape_error(), "attention_fwd: scale is 0, expected a positive number"));
  a = good, a.q_lengths = lse.view({3});
  CHECK(contains(shape_error(), "attention_fwd: q_lengths is fp32[3], expected shape [2]"));
  a = good, a.k_lengths = lse.view({2});
  CHECK(contains(dtype_error(),
                 cat("attention_fwd: k_lengths is fp32[2], expected ", dtype_name(DType::kI32))));
  a = good, a.first_keys = lse.view({5, 2});
  CHECK(contains(shape_error(), "attention_fwd: first_keys is fp32[5,2], expected shape [2,5]"));
  a = good, a.first_keys = lse.view({2, 5});
  CHECK(contains(dtype_error(), "attention_fwd: first_keys is fp32[2,5], expected"));
  a = good, a.k.dtype = DType::kBF16;
  CHECK(contains(dtype_error(), "attention_fwd: k is bf16[2,7,2,8], expected fp32"));
  a = good, a.q.dtype = DType::kF64;
  CHECK(
      contains(dtype_error(), "attention_fwd: q is fp64[2,5,4,8], expected fp32 or bf16 or fp16"));
  a = good, a.lse.dtype = DType::kBF16;
  CHECK(contains(dtype_error(), "attention_fwd: lse is bf16[2,4,5], expected fp32"));

  kernels::AttentionBwdArgs b{good.q, good.k, good.v, good.out, good.lse, good.out,
                              good.q, good.k, good.v, 1,        false};
  b.dk = View{};
  CHECK(contains(message_of<ShapeError>([&] { kernels::attention_bwd(exec, b); }),
                 "attention_bwd: dk is missing"));
}

}  // namespace shale
