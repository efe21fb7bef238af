#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

class BlockMask;  // ops/block_mask.h

// softmax(scale * q kᵀ + mask) v, tile by tile (arXiv:2205.14135): the score matrix never exists.
// q: [B, Tq, H, D]; k, v: [B, Tk, Hkv, D] with H a multiple of Hkv; any strides but the last, which
// is 1. The causal mask lets query i see keys j <= i + Tk - Tq. Returns [B, Tq, H, D]. scale 0
// stands for 1 / sqrt(D). Keeps q, k, v, the output and one f32 per query and head for backward.
struct AttentionOptions {
  bool causal = true;
  float scale = 0;
  // Padding: of sequence b only the first k_lengths[b] keys are seen, and the first q_lengths[b]
  // queries see any; the others give 0. The causal mask aligns at the last of both. [B] i32 on the
  // device, taken as between 0 and Tk (Tq); optional. What lies in the padding has no effect, and
  // gets gradients of 0.
  Tensor q_lengths{}, k_lengths{};
  // Of a causal mask, query i sees the last `window` keys alone: those from i + Tk - Tq - window +
  // 1 on (arXiv:2310.06825, section 2). 0: all.
  int64_t window = 0;
  // Query i of sequence b sees no key before first_keys[b, i], such as the first of its document.
  // [B, Tq] i32 on the device, never less than that of the query before; optional.
  Tensor first_keys{};
  // Scores s, scaled, become softcap * tanh(s / softcap) (arXiv:2408.00118, section 2); from 0.001
  // to 1000, 0: they stay as they are.
  float softcap = 0;
  // The blocks of keys that are seen; without it all are. Of a layer of more heads than those of
  // q, the first of these is its head `first_head`. Not with lengths.
  std::shared_ptr<const BlockMask> blocks{};
  int64_t first_head = 0;
};
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});

// The same for q, k and v that lie side by side: qkv [B, T, 3·H·D] as one linear layer made them.
// Returns [B, T, H·D]; backward writes one tensor, without permutes or copies.
Tensor packed_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options = {});

// For other ops of attention: what both throw for shapes and dtypes that do not go together, and
// the three [B, T, H, D] parts of a packed tensor, views that record nothing.
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v);
void check_packed(const Tensor& qkv, int64_t heads);
std::array<Tensor, 3> split_qkv(const Tensor& qkv, int64_t heads);

}  // namespace shale
