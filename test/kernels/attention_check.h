#pragma once

#include <cmath>
#include <vector>

#include "shale/test/kernels/attention_run.h"
#include "shale/test/support/catch.h"

namespace shale::test {

inline AttentionShape shape_of(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
                               int64_t kv_heads, int64_t head_size, bool causal = true) {
  return {batch,    queries,   keys,   heads,
          kv_heads, head_size, causal, 1 / std::sqrt(static_cast<double>(head_size))};
}

// Checks that the error is at most twice the error of a reference that rounds to T, or half an ulp:
// with few results, the reference may by chance hardly round. If all exact results are 0, they are
// f32 sums that cancel, which other bounds check.
template <typename T>
bool as_good_as_rounding(const std::vector<T>& got, const Bounded& exact, const Bounded& rounded) {
  if (max_abs(exact.value) < 1e-5) return true;
  return error_ratio(got, exact.value, rounded.value, 0.5) <= 1;
}

template <typename T>
void check_against_f64(const Exec& exec, const AttentionInputs<T>& in,
                       kernels::AttentionTile tile = kernels::AttentionTile::kOfHeadSize) {
  const RefAttention want = in.reference(exec.device);
  const AttentionResults<T> got = run_attention(exec, in, {}, tile);
  // The bounds are derived in ref_attention.cpp.
  CHECK(error_over_bound(to_f64(got.out), want.out) <= 1);
  CHECK(error_over_bound(to_f64(got.lse), want.lse) <= 1);
  CHECK(error_over_bound(to_f64(got.dq), want.dq) <= 1);
  CHECK(error_over_bound(to_f64(got.dk), want.dk) <= 1);
  CHECK(error_over_bound(to_f64(got.dv), want.dv) <= 1);
  if (sizeof(T) != 2) return;
  const RefAttention rounded = in.rounded();
  CHECK(as_good_as_rounding(got.out, want.out, rounded.out));
  CHECK(as_good_as_rounding(got.dq, want.dq, rounded.dq));
  CHECK(as_good_as_rounding(got.dk, want.dk, rounded.dk));
  CHECK(as_good_as_rounding(got.dv, want.dv, rounded.dv));
}

// Checks normal inputs of a shape on these devices.
template <typename T>
void check_on(const std::vector<Exec>& execs, const AttentionShape& shape) {
  const AttentionInputs<T> in(shape, 41);
  for (const Exec& exec : execs) {
    CAPTURE(describe(exec), describe(shape));
    check_against_f64(exec, in);
  }
}
template <typename T>
void check_on_cpu(const AttentionShape& shape) {
  check_on<T>(only_gpus(attention_variants(), /*gpu=*/false), shape);
}
template <typename T>
void check_on_gpus(const AttentionShape& shape) {
  check_on<T>(only_gpus(attention_variants()), shape);
}

}  // namespace shale::test
