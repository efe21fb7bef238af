#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Tile of the forward kernel: queries of a thread block x keys of one loop iteration.
enum class AttentionTile : uint8_t { kOfHeadSize, k64x32, k64x64, k128x32, k128x64 };

// Block size of BlockLists in tokens: a multiple of the tiles of all kernels that support them.
inline constexpr int64_t kAttentionBlock = 128;

// Block-sparse pattern: which key blocks each query block attends to. Blocks have kAttentionBlock
// tokens; the last one may be shorter. There are Nq query blocks and Nk key blocks. Query block i
// attends to the key blocks with the numbers keys[key_begins[i]] to keys[key_begins[i + 1] - 1],
// which are in ascending order. query_begins and queries hold the transpose: the query blocks that
// attend to each key block. P is 1 (one pattern for all heads) or H (one pattern per head). All
// views are dense, i32, in device memory; their contents are not checked.
struct BlockLists {
  View key_begins{};    // [P, Nq + 1]: index in `keys` where each query block's list begins
  View keys{};          // [n]: lists of key block numbers
  View query_begins{};  // [P, Nk + 1]: index in `queries` where each key block's list begins
  View queries{};       // [n]: lists of query block numbers

  bool defined() const { return key_begins.defined(); }
};

// Positions of a call's tokens in a longer sequence: at most two ranges of `run` tokens each, which
// start at first[0] and first[1], ascending. run = 0: the call has the whole sequence.
struct TokenPlaces {
  int64_t run = 0;
  int64_t first[2] = {0, 0};

  constexpr int64_t of(int64_t token) const {
    return token < run ? first[0] + token : first[1] + token - run;
  }
  // Returns how many of the call's `tokens` tokens have a position below `place`.
  constexpr int64_t before(int64_t place, int64_t tokens) const {
    const int64_t earlier = within_run(place - first[0]);
    return run < tokens ? earlier + within_run(place - first[1]) : earlier;
  }

 private:
  constexpr int64_t within_run(int64_t some) const {
    return some < 0 ? 0 : some < run ? some : run;
  }
};

// Scaled dot-product attention, computed tile by tile with an online softmax (arXiv:2205.14135,
// arXiv:2307.08691): the T×T matrix is never stored.
//   out = softmax(scale * q k^T + mask) v
// Views may have any strides except the last, which is 1: q, k, v may be slices of one [B, T, 3, H,
// D] tensor. q may have a multiple of the heads of k and v (grouped-query attention). The causal
// mask aligns at the bottom right: query i sees keys j <= i + Tk - Tq. A query that sees no key
// gets out = 0 and lse = -inf. All tensors have one dtype: f32, bf16 or f16; accumulation is in
// f32. scale is positive.
//
// q_lengths and k_lengths (optional) allow sequences of different lengths in a batch: for sequence
// b only the first q_lengths[b] queries and k_lengths[b] keys count, and the mask aligns at their
// corner. Lengths are clamped to [0, Tq] and [0, Tk]. Queries beyond them see no key and keys
// beyond them are not seen, whatever the inputs hold there.
//
// `window` limits causal attention to the last `window` keys that a query would see
// (arXiv:2310.06825, section 2). first_keys hides the keys before a given one from each query, for
// example before the first token of the query's document. Key tiles that no query of a tile sees
// are neither computed nor read. The same holds for key blocks that `blocks` leaves out
// (arXiv:1904.10509); `blocks` may be combined with all of these but lengths.
//
// With a softcap c, scores s = scale * q k^T become c tanh(s / c) before the mask
// (arXiv:2408.00118, section 2).
//
// With query_places and key_places, a call has ranges of a longer sequence's tokens. The window and
// first_keys then refer to positions in the whole sequence, with or without a causal mask; the
// causal mask refers to the call's own tokens. Incompatible with lengths.
//
// Throws UnavailableError for a tile that has no kernel for the head size.
struct AttentionFwdArgs {
  View q;    // [B, Tq, H, D]
  View k;    // [B, Tk, Hkv, D]
  View v;    // [B, Tk, Hkv, D]
  View out;  // [B, Tq, H, D]
  View lse;  // [B, H, Tq] f32: log of the sum of exp(scale * scores)
  float scale = 0;
  bool causal = false;
  View q_lengths{}, k_lengths{};  // [B] i32: length of each sequence; optional
  int64_t window = 0;             // 0: none
  // [B, Tq] i32; optional. Must not decrease along a sequence. Ignored beyond q_lengths.
  View first_keys{};
  float softcap = 0;    // 0.001 to 1000; 0: none
  BlockLists blocks{};  // undefined: all blocks
  TokenPlaces query_places{}, key_places{};
  // Tile that GPUs use for 16-bit inputs, instead of the default for the head size; for tests.
  AttentionTile tile = AttentionTile::kOfHeadSize;
};

// Overwrites all elements of dq, dk and dv, which may also be slices of one tensor.
struct AttentionBwdArgs {
  View q, k, v, out, lse;  // as in AttentionFwdArgs
  View dout;               // like out
  View dq, dk, dv;         // like q, k, v
  float scale = 0;
  bool causal = false;
  View q_lengths{}, k_lengths{};
  int64_t window = 0;
  View first_keys{};
  float softcap = 0;
  BlockLists blocks{};
  TokenPlaces query_places{}, key_places{};
};

// Merges attention over some keys (part, part_lse) into attention over other keys (sum, lse), in
// place:
//   lse' = log(exp(lse) + exp(part_lse)),  sum' = exp(lse - lse') sum + exp(part_lse - lse') part
// in f32. Attention that saw no key has an lse of -inf, and its values are ignored. If both saw no
// key, sum' is 0. Views may have any strides except the last, which is 1.
struct AttentionMergeArgs {
  View sum;       // [B, T, H, D] f32: output of attention over the other keys
  View lse;       // [B, H, T] f32: log-sum-exp of the attention in `sum`
  View part;      // [B, T, H, D] f32, bf16 or f16: output of attention over some keys
  View part_lse;  // [B, H, T] f32: log-sum-exp of the attention in `part`
};

// attention_problem(), which the kernels of every device call first, does the checks.
inline void check_args(const AttentionFwdArgs&) {}
inline void check_args(const AttentionBwdArgs&) {}
void check_args(const AttentionMergeArgs& a);

inline Slot<AttentionFwdArgs> attention_fwd{"attention_fwd"};
inline Slot<AttentionBwdArgs> attention_bwd{"attention_bwd"};
inline Slot<AttentionMergeArgs> attention_merge{"attention_merge"};

}  // namespace shale::kernels
