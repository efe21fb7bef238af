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

// How attention sees the tokens of other ranks (comm/parallel/context/cut_attention.h).
enum class ContextKind : uint8_t {
  kGather,   // every rank gathers the keys and values of all tokens
  kRing,     // keys and values move around the ranks, one rank's at a time
  kUlysses,  // ranks exchange tokens for heads; each sees whole sequences
  // Neighbouring ranks exchange tokens for heads; the keys and values of these heads move around a
  // ring of such groups (USP, arXiv:2405.07719).
  kUlyssesRing,
};

// Division of a sequence into R shards, one for each mesh rank. The sequence has 2 R chunks of
// equal length. Shard i has chunk i and the i-th chunk from the end, so that causal attention is
// the same work for all shards (arXiv:2407.21783, section 3.3.2).
struct SequenceParts {
  int shards = 1;  // R
  int first = 0;   // first shard of this rank
  int count = 1;   // shards of this rank
  int slices = 1;  // equal slices of a shard's tokens, one for each tensor rank

  int chunks() const { return 2 * shards; }
  // Number of a shard's earlier chunk (half 0) or later chunk (half 1).
  int chunk(int shard, int half) const { return half == 0 ? shard : chunks() - 1 - shard; }
  // Tokens per chunk for sequences of `tokens` tokens; the end of the last chunk may be padding.
  int64_t chunk_tokens(int64_t tokens) const {
    // smallest chunk for which `slices` divides a shard, which has two chunks
    const int64_t unit = slices % 2 == 0 ? slices / 2 : slices;
    const int64_t units = chunks() * unit;
    return (tokens + units - 1) / units * unit;
  }
  // Copies a shard's tokens of a sequence, the earlier chunk first, and fills up with `padding`
  // after the sequence's last token. to: 2 chunk_tokens(). Returns the end of the written tokens.
  int32_t* copy_shard(std::span<const int32_t> tokens, int shard, int32_t padding,
                      int32_t* to) const;
  // Number of tokens of a sequence that this rank has.
  int64_t own_tokens(int64_t tokens) const { return 2 * count * chunk_tokens(tokens); }
};

// Sequences whose tokens are on R ranks. A rank has tensors [B, T / R, ...] of B sequences, with
// its two chunks of each sequence (SequenceParts). Layers that work on single tokens do not need
// this class. Attention exchanges keys and values (comm/parallel/context/cut_attention.h).
// Positions and dropout masks are those of the whole sequences. Losses are added over the ranks.
class CutSequence {
 public:
  // exchange: its rows are tokens. tokens: of a whole sequence, unpadded. slices: see
  // SequenceParts.
  CutSequence(std::unique_ptr<Exchange> exchange, int64_t tokens,
              ContextKind kind = ContextKind::kGather, int slices = 1);

  // Call it before attention of kind kUlyssesRing. `heads` connects the ranks of a group that
  // exchange tokens for heads; `ring` connects the ranks with the same number in every group.
  void set_groups(std::unique_ptr<Exchange> heads, std::unique_ptr<Exchange> ring);

  Exchange& exchange() { return *exchange_; }
  // Ranks that exchange tokens for heads: all ranks for kUlysses, those of a group for
  // kUlyssesRing.
  Exchange& heads_exchange() { return heads_ != nullptr ? *heads_ : *exchange_; }
  // For kUlyssesRing: the sequences after the exchange of tokens for heads. They have kind kRing,
  // the shards of this rank's group and some of the heads. Null for other kinds.
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
  int group_ = 1;  // number of ranks that exchange tokens for heads, if groups form a ring
  std::map<std::pair<Context*, int64_t>, Tensor> positions_;
};

// Positions of the elements of an activation x [B, T, C] in the whole activation, for dropout
// masks. x has a slice of the rows if `layers` is not null, and shards of sequences if `sequence`
// is not null.
std::vector<DropoutPlace> places_of(const Exchange* layers, const CutSequence* sequence,
                                    const Tensor& x);

}  // namespace shale::comm
