#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::nn {

// How the work of a model is distributed, as its layers see it (Module::distribution()). A layer is
// written for one rank, and calls these functions where ranks that share its weights, its sequences
// or its experts do something together. Here they are those of one rank that has everything;
// comm::Parallel (comm/parallel/parallel.h) gives models those of a mesh. Collective over its
// ranks, in one order.
class Distribution {
 public:
  virtual ~Distribution() = default;

  // ---- Layers whose weights ranks share (Parameter::split) ----

  // What a layer makes of its input: body(rows, residual), where `rows` are those of all ranks and
  // the result is the sum over ranks, plus `residual`, which may be undefined. Between such layers
  // a rank has its slice of the rows. x, residual and the result: [..., T, C] of this rank; rows:
  // [..., T of all ranks, C]. What body does with `residual` is to pass it to the op that makes its
  // result, or to add it if it is defined: where there are several ranks it is not, and the op's
  // rows travel as they are made. Rows that body reads may still be travelling too: an op that
  // reads them waits, a product goes piece by piece.
  using Body = std::function<Tensor(const Tensor& rows, const Tensor& residual)>;
  virtual Tensor across(const Tensor& x, const Tensor& residual, const Body& body) const {
    return body(x, residual);
  }
  // The number, among those of all ranks, of the first of `count` heads or channels that this rank
  // has of them.
  virtual int64_t first_of(int64_t /*count*/) const { return 0; }
  // The sum over ranks of what each has of its channels, on every rank; f32.
  virtual Tensor sum_over_channels(const Tensor& part) const { return part; }
  // Rows of a table that has `rows` on all ranks: look_up(the rows that are here) of [B, T] ids.
  using LookUp = std::function<Tensor(const TableRows&)>;
  virtual Tensor embed(int64_t /*rows*/, const LookUp& look_up) const { return look_up({}); }
  // linear_cross_entropy() over the rows of all ranks. x: [rows, C]; table: this rank's rows.
  // Throws ShapeError for capped logits of a table that ranks share.
  virtual Tensor classifier_loss(const Tensor& x, const Tensor& table, const Tensor& targets,
                                 int64_t vocab, const ClassifierLossOptions& options) const {
    return linear_cross_entropy(x, table, targets, vocab, options);
  }

  // ---- Models between whose layers a rank has whole samples ----

  // Of how many ranks a micro-batch's samples are.
  virtual int64_t sample_ranks() const { return 1; }
  // This rank's samples of [B, ...], dense: a view. Throws ShapeError unless the ranks divide B.
  virtual Tensor own_samples(const Tensor& all) const { return all; }
  virtual Tensor all_samples(const Tensor& own) const { return own; }  // not recorded
  virtual Tensor sum_over_samples(const Tensor& loss) const { return loss; }

  // ---- Sequences whose tokens are on several ranks ----

  virtual bool shares_sequences() const { return false; }
  // attention() and packed_attention() of this rank's queries over the whole sequences.
  virtual Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionOptions& options = {}) const {
    return shale::attention(q, k, v, options);
  }
  virtual Tensor packed_attention(const Tensor& qkv, int64_t heads,
                                  const AttentionOptions& options = {}) const {
    return shale::packed_attention(qkv, heads, options);
  }
  // Where the tokens of this rank are in so many sequences: [B, T] i32; undefined: 0, 1, ...
  virtual Tensor positions(Context& /*context*/, int64_t /*sequences*/) const { return {}; }
  // Where the elements of x, [B, T, C], are in the whole, for masks; empty: whole samples.
  virtual std::vector<DropoutPlace> places_of(const Tensor& /*x*/) const { return {}; }
  Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual = {}) const {
    return shale::dropout(x, p, site, residual, places_of(x));
  }

  // ---- Mixtures of experts ----

  // across() where ranks have a part of every expert; where they have different experts, or there
  // is one rank, body of its own rows.
  virtual Tensor across_experts(const Tensor& x, const Tensor& residual, const Body& body) const {
    return body(x, residual);
  }
  // Whether this rank counts the tokens that it routes: one of several that route the same does.
  virtual bool counts_routed() const { return true; }
  // Tokens that all ranks route of one micro-batch, where each routes so many of its own.
  virtual int64_t routed_tokens(int64_t here) const { return here; }
  // Adds up what these ranks have counted, i32, in place.
  virtual void sum_routed(const Tensor& /*counts*/) const {}
  // products(rows, offsets) of rows sorted by expert, those of expert e from offsets[e] on, by the
  // ranks that have the experts.
  using Products = std::function<Tensor(const Tensor& rows, const Tensor& offsets)>;
  virtual Tensor through_experts(const Tensor& rows, const Tensor& offsets,
                                 const Products& products) const {
    return products(rows, offsets);
  }
};

}  // namespace shale::nn
