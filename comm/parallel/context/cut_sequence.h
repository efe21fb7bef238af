#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/tensor/context.h"

namespace shale::comm {

// Algorithm by which attention sees the tokens of other ranks
// (comm/parallel/context/cut_attention.h).
enum class ContextKind : uint8_t {
  kGather,   // every rank gathers the keys and values of all tokens
  kRing,     // keys and values move around the ranks, one rank's at a time
  kUlysses,  // ranks exchange tokens for heads; each sees whole sequences
  // Neighbouring ranks exchange tokens for heads; the keys and values of these heads move around a
  // ring of such groups (USP, arXiv:2405.07719).
  kUlyssesRing,
};

// Division of a sequence into R shards. A shard is the part that one mesh rank
// has. The sequence has 2 R chunks of equal length; shard i has chunk i and the i-th chunk from the
// end, so that causal attention is equal work for all shards (arXiv:2407.21783, section 3.3.2).
struct SequenceParts {
  int shards = 1;  // R
  int first = 0;   // first shard of this rank
  int count = 1;   // shards of this rank
  int slices = 1;  // equal slices of a shard's tokens, one for each tensor rank

  int chunks() const { return 2 * shards; }
  // Index of a shard's earlier (0) or later (1) chunk.
  int chunk(int shard, int half) const { return half == 0 ? shard : chunks() - 1 - shard; }
  // Tokens per chunk for sequences of `tokens` tokens; the end of the last chunk may be padding.
  int64_t chunk_tokens(int64_t tokens) const {
    const int64_t unit = slices % 2 == 0 ? slices / 2 : slices;  // a shard has two chunks
    const int64_t units = chunks() * unit;
    return (tokens + units - 1) / units * unit;
  }
  // Copies a shard's tokens of a sequence, earlier chunk first; `padding` follows the last token.
  // to: 2 chunk_tokens(). Returns the end of the written tokens.
  int32_t* copy_shard(std::span<const int32_t> tokens, int shard, int32_t padding,
                      int32_t* to) const;
  // Tokens per sequence on this rank.
  int64_t own_tokens(int64_t tokens) const { return 2 * count * chunk_tokens(tokens); }
};

// Sequences whose tokens are on R ranks. A rank has tensors [B, T / R, ...] of B sequences, with
// its two chunks of each (SequenceParts). Layers that work on single tokens do not need this class.
// Attention exchanges keys and values (comm/parallel/context/cut_attention.h), positions and
// dropout masks are those of the whole sequences, and losses are added over the ranks.
class CutSequence {
 public:
  // tokens: per whole sequence, without padding; slices: see SequenceParts. The "rows" of the
  // exchange are tokens.
  CutSequence(std::unique_ptr<Exchange> exchange, int64_t tokens,
              ContextKind kind = ContextKind::kGather, int slices = 1);

  // For kUlyssesRing: `heads` connects the ranks of a group, `ring` the ranks at the same position
  // in every group. Call it before attention.
  void set_groups(std::unique_ptr<Exchange> heads, std::unique_ptr<Exchange> ring);

  Exchange& exchange() { return *exchange_; }
  // Ranks that exchange heads: for kUlysses all, for kUlyssesRing those of the group.
  Exchange& heads_exchange() { return heads_ != nullptr ? *heads_ : *exchange_; }
  // For kUlyssesRing: the sequences after the exchange of heads, with the shards of this rank's
  // group and some of the heads, of kind kRing; else null.
  CutSequence* ring() { return ring_.get(); }
  ContextKind kind() const { return kind_; }
  SequenceParts parts() const;
  int64_t tokens() const { return tokens_; }
  int64_t chunk_tokens() const { return parts().chunk_tokens(tokens_); }
  // Positions of this rank's tokens for `sequences` sequences, i32 [B, T / R]. Padding has the last
  // token's position.
  const Tensor& positions(Context& context, int64_t sequences);
  // Adds the losses of all ranks, f32 scalars, as a binary tree. Collective.
  Tensor sum(const Tensor& loss) { return sum_losses(*exchange_, loss); }

 private:
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Exchange> heads_;
  std::unique_ptr<CutSequence> ring_;
  int64_t tokens_;
  ContextKind kind_;
  int slices_;
  int group_ = 1;  // number of ranks whose tokens this rank has
  std::map<std::pair<Context*, int64_t>, Tensor> positions_;
};

// Positions of the elements of an activation x [B, T, C] in the whole tensor, for dropout masks, if
// x has slices of the rows, shards of sequences, or both. Either pointer may be null.
std::vector<DropoutPlace> places_of(const Exchange* layers, const CutSequence* sequence,
                                    const Tensor& x);

}  // namespace shale::comm
