#include <cmath>
#include <limits>

#include "test/kernels/attention_run.h"
#include "test/support/catch.h"

namespace shale {
namespace {

using test::AttentionInputs;
using test::AttentionResults;
using test::AttentionShape;
using test::RefAttention;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// [B, T, 3, H, D], and q, k or v of it.
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
  // A dense slice into or out of packed values.
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
  // Both schemes of backward, and forward with few queries.
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
  // On the CPU, one sequence alone takes the other scheme of backward: both must add in one order.
  AttentionShape shape{4, 140, 170, 4, 2, 24, true, 0.3};
  const AttentionInputs<float> all(shape, 6);
  for (const Exec& exec : test::devices()) {
    CAPTURE(to_string(exec.device));
    const AttentionResults<float> want = test::run_attention(exec, all);
    AttentionInputs<float> one = all;
    one.shape.batch = 1;
    const auto cut = [](std::vector<float>& to, const std::vector<float>& from, int64_t part) {
      const auto size = static_cast<int64_t>(from.size()) / 4;
      to.assign(from.begin() + part * size, from.begin() + (part + 1) * size);
    };
    for (int64_t b = 0; b < 4; ++b) {
      AttentionResults<float> part;
      cut(part.out, want.out, b), cut(part.lse, want.lse, b), cut(part.dq, want.dq, b);
      cut(part.dk, want.dk, b), cut(part.dv, want.dv, b);
      cut(one.q, all.q, b), cut(one.k, all.k, b), cut(one.v, all.v, b), cut(one.dout, all.dout, b);
      CHECK(test::same_bits(test::run_attention(exec, one).all(), part.all()));
    }
  }
}

TEMPLATE_TEST_CASE("attention on slices of [B,T,3,H,D] touches nothing else",
                   "[kernels][attention]", float, bf16) {
  const int64_t length = GENERATE(3, 100);
  const AttentionShape shape{2, length, length, 3, 3, 20, true, 0.25};
  const AttentionInputs<TestType> in(shape, 7);
  const Packed packed{shape.batch, length, shape.heads, shape.head_size};
  std::vector<TestType> qkv_values(size_t(packed.count()));
  packed.put(qkv_values, in.q, 0), packed.put(qkv_values, in.k, 1), packed.put(qkv_values, in.v, 2);
  const std::vector<TestType> marker(size_t(packed.count()), TestType(7.f));
  for (const Exec& exec : test::devices()) {
    CAPTURE(to_string(exec.device));
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

    // One gradient at a time goes into the packed tensor, so that each shows what it leaves alone.
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
  const int64_t queries = GENERATE(2, 130);
  // q and k of standard deviation 40: scores have 40^2 sqrt(64) = 1e4.
  const AttentionInputs<float> in({1, queries, 130, 2, 2, 64, causal, 1.}, 8, 40.);
  const RefAttention want = in.reference();
  for (const Exec& exec : test::devices()) {
    CAPTURE(to_string(exec.device));
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
  const auto [queries, keys] = GENERATE(std::pair{150, 70}, std::pair{70, 0}, std::pair{4, 2});
  const AttentionShape shape{1, queries, keys, 2, 2, 16, true, 0.25};
  AttentionInputs<float> in(shape, 9);
  const size_t row = 2 * 16, blind = size_t(queries - keys);
  for (const Exec& exec : test::devices()) {
    CAPTURE(to_string(exec.device), queries, keys);
    const AttentionResults<float> got = test::run_attention(exec, in);
    for (size_t i = 0; i < blind * row; ++i) {
      REQUIRE(got.out[i] == 0);
      REQUIRE(got.dq[i] == 0);
    }
    for (size_t i = 0; i < blind; ++i) {
      REQUIRE(got.lse[i] == -kInfinity);
      REQUIRE(got.lse[size_t(queries) + i] == -kInfinity);
    }
    // Nothing of theirs reaches a key.
    AttentionInputs<float> other = in;
    for (size_t i = 0; i < blind * row; ++i) other.q[i] = 100, other.dout[i] = 100;
    const AttentionResults<float> same = test::run_attention(exec, other);
    CHECK(test::same_bits(same.dk, got.dk));
    CHECK(test::same_bits(same.dv, got.dv));
  }
}

TEST_CASE("later keys change nothing for a causal query", "[kernels][attention]") {
  const AttentionShape shape{1, 140, 140, 2, 2, 24, true, 0.2};
  const AttentionInputs<float> in(shape, 10);
  AttentionInputs<float> other = in;
  const size_t row = 2 * 24, cut = 77;
  for (size_t i = cut * row; i < in.k.size(); ++i) other.k[i] += 1, other.v[i] -= 1;
  for (const Exec& exec : test::devices()) {
    CAPTURE(to_string(exec.device));
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
  for (const Exec& exec : test::devices()) {
    CAPTURE(to_string(exec.device), queries);
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
  const Exec& exec = test::devices().front();
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
  CHECK(contains(shape_error(), "attention_fwd: k is fp32[2,7,3,8], want a number of heads"));
  a = good, a.v.shape = {2, 6, 2, 8};
  CHECK(contains(shape_error(), "attention_fwd: v is fp32[2,6,2,8], want shape [2,7,2,8]"));
  a = good, a.k.shape = {1, 7, 2, 8};
  CHECK(contains(shape_error(), "attention_fwd: k is fp32[1,7,2,8], want shape [2,7,2,8]"));
  a = good, a.out.shape = {2, 5, 8, 4};
  CHECK(contains(shape_error(), "attention_fwd: out is fp32[2,5,8,4], want shape [2,5,4,8]"));
  a = good, a.lse.shape = {2, 5, 4};
  CHECK(contains(shape_error(), "attention_fwd: lse is fp32[2,5,4], want shape [2,4,5]"));
  a = good, a.q.strides = {160, 4, 1, 4};
  CHECK(contains(shape_error(), "want stride 1 in the last dimension"));
  a = good, a.q = q.view({2, 5, 32});
  CHECK(contains(shape_error(), "attention_fwd: q is fp32[2,5,32], want shape [B,Tq,H,D]"));
  a = good, a.q = q.view({1, 1, 1, 320});
  CHECK(contains(shape_error(), "want a last dimension from 1 to 256"));
  a = good, a.k.dtype = DType::kBF16;
  CHECK(contains(dtype_error(), "attention_fwd: k is bf16[2,7,2,8], want fp32"));
  a = good, a.q.dtype = DType::kF64;
  CHECK(contains(dtype_error(), "attention_fwd: q is fp64[2,5,4,8], want fp32 or bf16 or fp16"));
  a = good, a.lse.dtype = DType::kBF16;
  CHECK(contains(dtype_error(), "attention_fwd: lse is bf16[2,4,5], want fp32"));

  kernels::AttentionBwdArgs b{good.q, good.k, good.v, good.out, good.lse, good.out,
                              good.q, good.k, good.v, 1,        false};
  b.dk = View{};
  CHECK(contains(message_of<ShapeError>([&] { kernels::attention_bwd(exec, b); }),
                 "attention_bwd: dk is missing"));
}

}  // namespace shale
