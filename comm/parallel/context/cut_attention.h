#pragma once

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/runtime/ops/attention.h"

namespace shale::comm {

// attention() (ops/attention.h) of sequences whose tokens are on several ranks, by the sequence's
// kind:
// - kGather: every rank gathers the keys and values of all tokens, and each chunk of its queries
//   sees those up to its own end (arXiv:2407.21783, section 3.3.2). Gradients of keys and values
//   are added over the chunks of a leaf, then over leaves by a binary tree, in f32.
// - kRing: keys and values go around, and each leaf of queries sees those of one leaf at a time
//   (arXiv:2310.01889). Results are merged, and gradients added, leaf by leaf around the ring, in
//   f32. Not with blocks.
// - kUlysses: ranks trade tokens for heads, and back (arXiv:2309.14509); they divide those of keys.
// - kUlyssesRing: those of a group trade, and groups are a ring, with the bits of kRing.
// So a call's shapes, and bits, depend on the number of leaves and not on that of ranks.
// Collective. q, k, v: [n B, T / R, H or Hkv, D], as CutSequence has them; returns like q.
// `options` has a causal mask, and perhaps a window, a softcap, blocks and first keys, which count
// from the beginning of the whole and lie as the queries do; throws ShapeError for others,
// ConfigError for what the kind does not take. Keeps what attention() keeps, of this rank's tokens,
// or of its heads; backward exchanges keys and values again.
Tensor attention(CutSequence& sequence, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});
// packed_attention() likewise; qkv: [n B, T / R, 3 H D].
Tensor packed_attention(CutSequence& sequence, const Tensor& qkv, int64_t heads,
                        const AttentionOptions& options = {});

}  // namespace shale::comm
