#pragma once

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/runtime/ops/attention.h"

namespace shale::comm {

// attention() (ops/attention.h) over sequences whose tokens are on several ranks. A shard is the
// part of a sequence that one mesh rank has; it consists of two chunks. A process has one or more
// shards of each sequence (SequenceParts in cut_sequence.h). The sequence's kind selects the
// algorithm:
// - kGather: every rank gathers the keys and values of all tokens; each chunk of its queries
//   attends to tokens up to the chunk's end (arXiv:2407.21783, section 3.3.2). Gradients of keys
//   and values are added over the chunks of a shard, then over shards as a binary tree, in f32.
// - kRing: keys and values move around the ring; each shard of queries attends to one shard of keys
//   at a time (arXiv:2310.01889). Results are merged, and gradients added, shard by shard around
//   the ring, in f32. Incompatible with a block-sparse mask.
// - kUlysses: ranks exchange tokens for heads, and back (arXiv:2309.14509); the number of ranks
//   must divide the number of key heads.
// - kUlyssesRing: the ranks of a group exchange tokens for heads, and groups form a ring. Results
//   have the same bits as with kRing.
//
// Shapes of kernel calls, and the bits of results, depend on the number of shards and not on the
// number of ranks.
//
// q: [n B, T / R, H, D]; k, v: [n B, T / R, Hkv, D]; returns a tensor like q. B is the number of
// sequences, T their padded length, R the number of shards of a sequence, and n the number of
// shards of a sequence in this process. `options` must have a causal mask, and may have a window, a
// softcap, a block-sparse mask, and first_keys: [n B, T / R] positions in the whole sequence.
//
// Keeps for backward what attention() keeps, of this rank's tokens or of its heads; backward
// exchanges keys and values again. Throws ShapeError for other options, ConfigError for options
// that the kind does not support. Collective.
Tensor attention(CutSequence& sequence, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});
// packed_attention() over sequences whose tokens are on several ranks. qkv: [n B, T / R, 3 H D];
// the letters are those of attention().
Tensor packed_attention(CutSequence& sequence, const Tensor& qkv, int64_t heads,
                        const AttentionOptions& options = {});

}  // namespace shale::comm
