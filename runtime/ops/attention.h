#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

class BlockMask;  // ops/block_mask.h

// FlashAttention: softmax(scale * q kᵀ + mask) v by tiles (arXiv:2205.14135), without storing the
// score matrix. q: [B, Tq, H, D]; k, v: [B, Tk, Hkv, D], where H is a multiple of Hkv. Any strides,
// except that the last is 1. With the causal mask, query i attends to keys j <= i + Tk - Tq.
// Returns [B, Tq, H, D]. scale 0 means 1 / sqrt(D). Keeps q, k, v, the output and one f32 per query
// and head for backward.
struct AttentionOptions {
  bool causal = true;
  float scale = 0;
  // Padding: in sequence b only the first k_lengths[b] keys and the first q_lengths[b] queries are
  // used; other queries return 0. The causal mask aligns the last used query with the last used
  // key. [B] i32 on the device, clamped to 0 ... Tk (Tq); optional. The padding's contents have no
  // effect, and its gradients are 0.
  Tensor q_lengths{}, k_lengths{};
  // Sliding window with a causal mask: query i attends only to the last `window` keys, from i + Tk
  // - Tq - window + 1 on (arXiv:2310.06825, section 2). 0: all.
  int64_t window = 0;
  // First key that query i of sequence b attends to, such as the first of its document. [B, Tq] i32
  // on the device, not decreasing within a sequence; optional.
  Tensor first_keys{};
  // Scaled scores s become softcap * tanh(s / softcap) (arXiv:2408.00118, section 2). 0.001 to
  // 1000; 0: off.
  float softcap = 0;
  // Block-sparse mask; null: dense. If q holds only some of a layer's heads, first_head is the
  // index in the layer of q's first head. Cannot be combined with lengths.
  std::shared_ptr<const BlockMask> blocks{};
  int64_t first_head = 0;
};
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});

// attention() for packed q, k and v: qkv [B, T, 3·H·D], the result of one linear layer. Returns [B,
// T, H·D]. Backward writes one tensor, without permutes or copies.
Tensor packed_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options = {});

// Helpers for other attention ops: the checks of both functions above for shapes and dtypes, and
// the three [B, T, H, D] parts of a packed tensor, as views that are not recorded.
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v);
void check_packed(const Tensor& qkv, int64_t heads);
std::array<Tensor, 3> split_qkv(const Tensor& qkv, int64_t heads);

}  // namespace shale
