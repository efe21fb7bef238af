#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Queries that a block of forward owns, and keys that it goes over at a time.
enum class AttentionTile : uint8_t { kOfHeadSize, k64x32, k64x64, k128x32, k128x64 };

// Tokens of a block of BlockLists: a multiple of the tiles of every kernel that takes them.
inline constexpr int64_t kAttentionBlock = 128;

// Which blocks of keys each block of queries sees, of kAttentionBlock tokens each, the last one
// perhaps shorter: Nq blocks from the first query on, Nk from the first key on. Block i has the
// entries [begins[i], begins[i + 1]) of a list of numbers of blocks, ascending; the two lists are
// each other's transpose. P is 1, for all heads alike, or H. All are dense, i32, in device memory,
// and are not checked there.
struct BlockLists {
  View key_begins{};    // [P, Nq + 1]
  View keys{};          // [n]
  View query_begins{};  // [P, Nk + 1]
  View queries{};       // [n]

  bool defined() const { return key_begins.defined(); }
};

// Where the tokens of a call stand in a sequence of which it has some: in at most two runs of so
// many tokens, from these places on, ascending. A run of 0: the call has the whole.
struct TokenPlaces {
  int64_t run = 0;
  int64_t first[2] = {0, 0};

  constexpr int64_t of(int64_t token) const {
    return token < run ? first[0] + token : first[1] + token - run;
  }
  // Of the call's tokens, those that stand before a place.
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
// arXiv:2307.08691): the T×T matrix never exists.
//   out = softmax(scale * q k^T + mask) v
// Views of any strides but the last, which is 1: q, k, v may be slices of one [B, T, 3, H, D]
// tensor. Heads of q may outnumber those of k and v by a whole factor (grouped-query attention).
// The causal mask aligns at the bottom right: query i sees keys j <= i + Tk - Tq. A query that sees
// no key gets out = 0 and lse = -inf. dtypes: f32, bf16 or f16, alike; accumulation in f32. scale
// is positive.
//
// Sequences of different lengths share a batch by q_lengths and k_lengths, which are optional: of
// sequence b only the first q_lengths[b] queries and k_lengths[b] keys count, and the mask aligns
// at their corner. Lengths are taken as between 0 and Tq or Tk. Queries beyond see no key, keys
// beyond are seen by none, whatever the inputs hold there.
//
// Queries see less from the left by `window`, of causal attention: the last so many of the keys
// that they would see (arXiv:2310.06825, section 2); and by first_keys: none before the given one,
// such as the first token of the query's document. Tiles of keys that no query of a tile sees are
// neither computed nor read. The same holds of what `blocks` leave out (arXiv:1904.10509), which
// go together with all this but lengths.
//
// With a softcap c, scores s = scale * q k^T become c tanh(s / c) before the mask
// (arXiv:2408.00118, section 2).
//
// A call may have runs of a longer sequence's tokens, by query_places and key_places: the window
// and first_keys then count in places of the whole, with or without a causal mask, which goes by
// the tokens that the call has. Not with lengths.
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
  View q_lengths{}, k_lengths{};  // [B] i32; optional
  int64_t window = 0;             // 0: none
  // [B, Tq] i32; optional. Along a sequence never less than before; with q_lengths, what stands
  // beyond them is not used.
  View first_keys{};
  float softcap = 0;    // 0.001 to 1000; 0: none
  BlockLists blocks{};  // undefined: all
  TokenPlaces query_places{}, key_places{};
  // GPUs, 16-bit inputs: the tile, instead of the one for the head size; for tests and benchmarks.
  AttentionTile tile = AttentionTile::kOfHeadSize;
};

// dq, dk, dv are written, every element, not added to; they may be slices of one tensor too.
struct AttentionBwdArgs {
  View q, k, v, out, lse;  // as in forward
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

// Adds to the attention of some keys, in place, that of others: with the softmax sums of both,
//   lse' = log(exp(lse) + exp(part_lse)),  sum' = exp(lse - lse') sum + exp(part_lse - lse') part
// in f32. Where no key was seen, lse is -inf and the values are not looked at; where none was seen
// on both sides, sum' is 0. Views of any strides but the last, which is 1.
struct AttentionMergeArgs {
  View sum;       // [B, T, H, D] f32
  View lse;       // [B, H, T] f32
  View part;      // like sum; f32, bf16 or f16
  View part_lse;  // like lse
};

// attention_problem() has the checks: every device's kernels begin with it.
inline void check_args(const AttentionFwdArgs&) {}
inline void check_args(const AttentionBwdArgs&) {}
void check_args(const AttentionMergeArgs& a);

inline Slot<AttentionFwdArgs> attention_fwd{"attention_fwd"};
inline Slot<AttentionBwdArgs> attention_bwd{"attention_bwd"};
inline Slot<AttentionMergeArgs> attention_merge{"attention_merge"};

}  // namespace shale::kernels
