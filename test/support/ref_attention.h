#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace shale::test {

struct AttentionShape {
  int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, head_size = 1;
  bool causal = false;
  double scale = 1;
  int64_t window = 0;                    // 0: no window
  // First key that each query sees, [batch, queries]; empty: all are 0.
  std::vector<int32_t> first_keys = {};
  double softcap = 0;                    // 0: no softcap
  // Returns true if a head's query block sees a key block, where blocks have kAttentionBlock
  // tokens. Null: every block sees every block.
  std::function<bool(int64_t head, int64_t query_block, int64_t key_block)> sees_block = {};

  // Returns the end of the keys that query i of a sequence sees: [first_key, visible_keys).
  int64_t visible_keys(int64_t i) const;
  int64_t first_key(int64_t b, int64_t i) const;
  bool sees(int64_t head, int64_t query, int64_t key) const;
  int64_t q_count() const { return batch * queries * heads * head_size; }
  int64_t kv_count() const { return batch * keys * kv_heads * head_size; }
  int64_t lse_count() const { return batch * heads * queries; }
};

// Error of stored results: rounding x to nearest adds up to relative * |x| + absolute.
struct StorageRounding {
  double relative = 0, absolute = 0;
  // True if probabilities and score gradients are rounded like stored results before they are
  // multiplied, as for tensor cores.
  bool operands = false;
};

// Exact values, and bounds for the error of a kernel that computes them in f32 from the same
// inputs.
struct Bounded {
  std::vector<double> value, bound;
  explicit Bounded(int64_t count)
      : value(static_cast<size_t>(count)), bound(static_cast<size_t>(count)) {}
};

// Returns the largest |got - value| / bound; +inf if only one of the two is NaN or infinite.
double error_over_bound(const std::vector<double>& got, const Bounded& want);

// Plain softmax attention in f64, forward and backward, one row of scores at a time. Dense arrays:
// q, dout and out [B, Tq, H, D], k and v [B, Tk, Hkv, D], lse [B, H, Tq].
struct RefAttention {
  Bounded out, lse, dq, dk, dv;
};
RefAttention ref_attention(const AttentionShape& shape, const std::vector<double>& q,
                           const std::vector<double>& k, const std::vector<double>& v,
                           const std::vector<double>& dout, const StorageRounding& storage = {});

// Runs ref_attention() and applies `round` to everything that a kernel stores, or multiplies on
// tensor cores. This measures the rounding error. Sets no bounds.
using Rounding = double (*)(double);
RefAttention rounded_attention(const AttentionShape& shape, const std::vector<double>& q,
                               const std::vector<double>& k, const std::vector<double>& v,
                               const std::vector<double>& dout, Rounding round);

}  // namespace shale::test
