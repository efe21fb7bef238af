#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

class BlockMask;  // ops/block_mask.h

// FlashAttention: softmax(scale * q kᵀ + mask) v, computed tile by tile (arXiv:2205.14135) without
// storing the score matrix. q: [B, Tq, H, D]; k, v: [B, Tk, Hkv, D], where H is a multiple of Hkv.
// Any strides, except that the last is 1. With the causal mask, query i attends to keys j <= i + Tk
// - Tq. Returns [B, Tq, H, D]. scale 0 means 1 / sqrt(D). Keeps q, k, v, the output and one f32 per
// query and head for backward.
struct AttentionOptions {
  bool causal = true;
  float scale = 0;
  // Padding. In sequence b only the first k_lengths[b] keys and the first q_lengths[b] queries are
  // used; other queries return 0. The causal mask aligns the last used query with the last used
  // key. Both are [B] i32 on the device, clamped to [0, Tk] and [0, Tq]; optional. The contents of
  // the padding have no effect, and its gradients are 0.
  Tensor q_lengths{}, k_lengths{};
  // Sliding window with a causal mask: query i attends only to the last `window` keys, that is,
  // from key i + Tk - Tq - window + 1 on (arXiv:2310.06825, section 2). 0: all keys.
  int64_t window = 0;
  // First key to which query i of sequence b attends, such as the first token of its document. [B,
  // Tq] i32 on the device, not decreasing within a sequence; optional.
  Tensor first_keys{};
  // Scaled scores s become softcap * tanh(s / softcap) (arXiv:2408.00118, section 2). 0.001 to
  // 1000; 0: off.
  float softcap = 0;
  // Block-sparse mask; null: dense. Cannot be combined with lengths. first_head: if q holds only
  // some of a layer's heads, the index of q's first head in the layer.
  std::shared_ptr<const BlockMask> blocks{};
  int64_t first_head = 0;
};
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});

// attention() of packed q, k and v. qkv: [B, T, 3·H·D], the result of one linear layer. Returns [B,
// T, H·D]. Backward writes the gradient as one packed tensor, without permutes or copies.
Tensor packed_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options = {});

// Helpers for other attention ops. The check_ functions check shapes and dtypes like attention()
// and packed_attention(). split_qkv() returns the three parts [B, T, H, D] of a packed tensor, as
// views that autograd does not record.
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v);
void check_packed(const Tensor& qkv, int64_t heads);
std::array<Tensor, 3> split_qkv(const Tensor& qkv, int64_t heads);

}  // namespace shale
