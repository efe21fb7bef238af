#pragma once

#include "shale/runtime/nn/cut_sequence.h"
#include "shale/runtime/ops/attention.h"

namespace shale::nn {

// attention() (ops/attention.h) of sequences whose tokens are on several ranks: every rank gathers
// the keys and values of all tokens, and each chunk of its queries sees those up to its own end
// (arXiv:2407.21783, section 3.3.2). So a call's shapes, and bits, depend on the number of leaves
// and not on that of ranks. Gradients of keys and values are added over the chunks of a leaf, then
// over leaves by a binary tree, in f32. Collective. q, k, v: [n B, T / R, H or Hkv, D], as
// CutSequence has them; returns like q. `options` has a causal mask, and perhaps a window, a
// softcap, blocks and first keys, which count from the beginning of the whole and lie as the
// queries do; throws ShapeError for others. Keeps what attention() keeps, of this rank's tokens;
// backward gathers keys and values again. sequence null: attention() itself.
Tensor attention(CutSequence* sequence, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});
// packed_attention() likewise; qkv: [n B, T / R, 3 H D].
Tensor packed_attention(CutSequence* sequence, const Tensor& qkv, int64_t heads,
                        const AttentionOptions& options = {});

}  // namespace shale::nn
