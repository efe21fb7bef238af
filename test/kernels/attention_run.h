#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "test/support/kernels.h"
#include "test/support/ref_attention.h"

namespace shale::test {

template <typename T>
struct AttentionInputs {
  AttentionShape shape;
  std::vector<T> q, k, v, dout;  // dense

  AttentionInputs(const AttentionShape& s, uint64_t seed, double std = 1)
      : shape(s),
        q(randn<T>(s.q_count(), seed, 0, std)),
        k(randn<T>(s.kv_count(), seed + 1, 0, std)),
        v(randn<T>(s.kv_count(), seed + 2)),
        dout(randn<T>(s.q_count(), seed + 3)) {}

  RefAttention reference() const {
    // Half an ulp; f16 results may be subnormal.
    const StorageRounding storage{ulp<T>() / 2,
                                  sizeof(T) == 2 && ulp<T>() == 0x1p-10 ? 0x1p-25 : 0};
    return ref_attention(shape, to_f64(q), to_f64(k), to_f64(v), to_f64(dout), storage);
  }
};

template <typename T>
struct AttentionResults {
  std::vector<T> out, dq, dk, dv;
  std::vector<float> lse;

  // All values in one array, for comparison of bits.
  std::vector<float> all() const {
    std::vector<float> values = lse;
    for (const auto* array : {&out, &dq, &dk, &dv}) {
      for (const T& value : *array) values.push_back(to_f32(value));
    }
    return values;
  }
};

inline Shape q_shape(const AttentionShape& s) {
  return {s.batch, s.queries, s.heads, s.head_size};
}
inline Shape kv_shape(const AttentionShape& s) {
  return {s.batch, s.keys, s.kv_heads, s.head_size};
}

// Forward and backward on dense arrays. What the kernels write is NaN before.
template <typename T>
AttentionResults<T> run_attention(const Exec& exec, const AttentionInputs<T>& in) {
  const AttentionShape& s = in.shape;
  const DeviceArray<T> q(exec, in.q), k(exec, in.k), v(exec, in.v), dout(exec, in.dout);
  const DeviceArray<T> out(exec, s.q_count()), dq(exec, s.q_count());
  const DeviceArray<T> dk(exec, s.kv_count()), dv(exec, s.kv_count());
  const DeviceArray<float> lse(exec, s.lse_count());
  const Shape qs = q_shape(s), kvs = kv_shape(s);
  const kernels::AttentionFwdArgs fwd{.q = q.view(qs),
                                      .k = k.view(kvs),
                                      .v = v.view(kvs),
                                      .out = out.view(qs),
                                      .lse = lse.view({s.batch, s.heads, s.queries}),
                                      .scale = static_cast<float>(s.scale),
                                      .causal = s.causal};
  kernels::attention_fwd(exec, fwd);
  kernels::attention_bwd(exec, {.q = fwd.q,
                                .k = fwd.k,
                                .v = fwd.v,
                                .out = fwd.out,
                                .lse = fwd.lse,
                                .dout = dout.view(qs),
                                .dq = dq.view(qs),
                                .dk = dk.view(kvs),
                                .dv = dv.view(kvs),
                                .scale = fwd.scale,
                                .causal = fwd.causal});
  for (const auto* array : {&out, &dq, &dk, &dv}) {
    if (!array->margins_intact()) throw InternalError("attention wrote outside its results");
  }
  return {out.download(), dq.download(), dk.download(), dv.download(), lse.download()};
}

inline std::string describe(const AttentionShape& s) {
  return cat("B ", s.batch, ", Tq ", s.queries, ", Tk ", s.keys, ", H ", s.heads, "/", s.kv_heads,
             ", D ", s.head_size, s.causal ? ", causal" : ", full");
}

}  // namespace shale::test
