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
  kRing,     // they go around, and are seen one rank's at a time
  kUlysses,  // ranks trade tokens for heads, and each sees whole sequences
  // Ranks next to each other trade tokens for heads, and of these keys and values go around among
  // such groups (USP, arXiv:2405.07719).
  kUlyssesRing,
};

// Where the tokens of a sequence are that is cut into R leaves: in 2 R chunks of equal length, leaf
// i has the i-th and the i-th from the end, so that causal attention is equal work on all leaves
// (arXiv:2407.21783, section 3.3.2).
struct SequenceParts {
  int leaves = 1;  // R
  int first = 0;   // of this rank
  int count = 1;   // of this rank
  int slices = 1;  // of equal length, into which layers that are cut divide a leaf's tokens

  int chunks() const { return 2 * leaves; }
  // The number of a leaf's earlier (0) or later (1) chunk.
  int chunk(int leaf, int half) const { return half == 0 ? leaf : chunks() - 1 - leaf; }
  // Tokens of a chunk, where sequences have so many: what is missing at the end is padding.
  int64_t chunk_tokens(int64_t tokens) const {
    const int64_t unit = slices % 2 == 0 ? slices / 2 : slices;  // a leaf has two chunks
    const int64_t units = chunks() * unit;
    return (tokens + units - 1) / units * unit;
  }
  // Copies what a leaf has of a sequence's tokens, earlier chunk first; `padding` follows the last
  // token. to: 2 chunk_tokens(). Returns the end of what it has written.
  int32_t* copy_leaf(std::span<const int32_t> tokens, int leaf, int32_t padding, int32_t* to) const;
  // Tokens that this rank has of a sequence.
  int64_t own_tokens(int64_t tokens) const { return 2 * count * chunk_tokens(tokens); }
};

// Sequences whose tokens are on several ranks. A rank, one of R, has tensors [B, T / R, ...] of B
// sequences, of each its two chunks (SequenceParts). What works on tokens alone does not ask for
// this. Attention exchanges keys and values (comm/parallel/context/cut_attention.h), positions and
// masks of dropout are those of the whole, and losses are added up over the ranks.
class CutSequence {
 public:
  // tokens: of a whole sequence, without padding; slices: see SequenceParts. The exchange's "rows"
  // are the tokens.
  CutSequence(std::unique_ptr<Exchange> exchange, int64_t tokens,
              ContextKind kind = ContextKind::kGather, int slices = 1);

  // Of kUlyssesRing: `heads` is over the ranks of a group, ring over the ranks at this one's place
  // in every group. Comes before attention.
  void set_groups(std::unique_ptr<Exchange> heads, std::unique_ptr<Exchange> ring);

  Exchange& exchange() { return *exchange_; }
  // Over the ranks that trade heads: of kUlysses all, of kUlyssesRing those of the group.
  Exchange& heads_exchange() { return heads_ != nullptr ? *heads_ : *exchange_; }
  // Of kUlyssesRing: sequences as a rank has them after the trade, leaves of its group and some
  // heads, whose kind is kRing; else null.
  CutSequence* ring() { return ring_.get(); }
  ContextKind kind() const { return kind_; }
  SequenceParts parts() const;
  int64_t tokens() const { return tokens_; }
  int64_t chunk_tokens() const { return parts().chunk_tokens(tokens_); }
  // Of so many sequences, i32 as this rank has their tokens: [B, T / R]. Padding has the last
  // token's.
  const Tensor& positions(Context& context, int64_t sequences);
  // The sum of all ranks' losses, f32 scalars, by a binary tree. Collective.
  Tensor sum(const Tensor& loss) { return sum_losses(*exchange_, loss); }

 private:
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Exchange> heads_;
  std::unique_ptr<CutSequence> ring_;
  int64_t tokens_;
  ContextKind kind_;
  int slices_;
  int group_ = 1;  // ranks whose tokens this one has
  std::map<std::pair<Context*, int64_t>, Tensor> positions_;
};

// Where the elements of an activation x [B, T, C] are in the whole, for masks of dropout: of slices
// of the rows, of parts of sequences, or of slices of these. Either may be null.
std::vector<DropoutPlace> places_of(const Exchange* layers, const CutSequence* sequence,
                                    const Tensor& x);

}  // namespace shale::comm
