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

// Distribution of a model's work over ranks, as its layers see it (Module::distribution()). A layer
// is written for one rank; it calls these functions where the ranks that share its weights,
// sequences or experts communicate. The implementations here are for a single rank that has
// everything; comm::Parallel (comm/parallel/parallel.h) gives models implementations for a device
// mesh. Collective over the mesh's ranks, in the same order on all of them.
class Distribution {
 public:
  virtual ~Distribution() = default;

  // ---- Tensor parallelism: layers whose weights are sharded (Parameter::split) ----

  // Runs a layer on the rows of all ranks: all-gathers x to `rows`, calls body(rows, residual) and
  // reduce-scatters the sum over ranks, plus `residual` (may be undefined). Between such layers
  // each rank holds its slice of the rows. x, residual, result: [..., T, C] of this rank; rows:
  // [..., T of all ranks, C]. body must pass its `residual` argument to the op that makes its
  // result, or add it if it is defined. With several ranks the argument is an undefined tensor that
  // makes the op send finished rows while it computes others. Rows that body reads may also still
  // be in transfer: a GEMM processes them piece by piece, other ops wait.
  using Body = std::function<Tensor(const Tensor& rows, const Tensor& residual)>;
  virtual Tensor across(const Tensor& x, const Tensor& residual, const Body& body) const {
    return body(x, residual);
  }
  // Index of the first of this rank's `count` heads or channels among those of all ranks.
  virtual int64_t first_of(int64_t /*count*/) const { return 0; }
  // Sums over ranks the parts that the ranks computed from their channels. The result, f32, is on
  // every rank.
  virtual Tensor sum_over_channels(const Tensor& part) const { return part; }
  // Looks up rows of a table with `rows` rows on all ranks: calls look_up(rows on this rank) for
  // ids [B, T] and combines the results.
  using LookUp = std::function<Tensor(const TableRows&)>;
  virtual Tensor embed(int64_t /*rows*/, const LookUp& look_up) const { return look_up({}); }
  // linear_cross_entropy() over the rows of all ranks. x: [rows, C]; table: this rank's rows.
  // Throws ShapeError for a softcap with a sharded table.
  virtual Tensor classifier_loss(const Tensor& x, const Tensor& table, const Tensor& targets,
                                 int64_t vocab, const ClassifierLossOptions& options) const {
    return linear_cross_entropy(x, table, targets, vocab, options);
  }

  // ---- Models in which ranks hold whole samples between sharded layers ----

  // Number of ranks over which a micro-batch's samples are divided.
  virtual int64_t sample_ranks() const { return 1; }
  // Returns a dense view of this rank's samples of `all`, [B, ...]. Throws ShapeError unless B is
  // divisible by the number of ranks.
  virtual Tensor own_samples(const Tensor& all) const { return all; }
  virtual Tensor all_samples(const Tensor& own) const { return own; }  // not recorded by autograd
  virtual Tensor sum_over_samples(const Tensor& loss) const { return loss; }

  // ---- Context parallelism: sequences whose tokens are on several ranks ----

  virtual bool shares_sequences() const { return false; }
  // attention() and packed_attention() of this rank's queries with the keys of the whole sequences.
  virtual Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionOptions& options = {}) const {
    return shale::attention(q, k, v, options);
  }
  virtual Tensor packed_attention(const Tensor& qkv, int64_t heads,
                                  const AttentionOptions& options = {}) const {
    return shale::packed_attention(qkv, heads, options);
  }
  // Positions of this rank's tokens in `sequences` sequences: [B, T] i32; undefined: 0, 1, ...
  virtual Tensor positions(Context& /*context*/, int64_t /*sequences*/) const { return {}; }
  // Positions of x's elements, [B, T, C], in the whole tensor, for dropout masks; empty if x has
  // whole samples.
  virtual std::vector<DropoutPlace> places_of(const Tensor& /*x*/) const { return {}; }
  Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual = {}) const {
    return shale::dropout(x, p, site, residual, places_of(x));
  }

  // ---- Expert parallelism ----

  // Like across(), if every expert is sharded over the ranks. If ranks hold different experts, or
  // there is one rank, calls body on this rank's rows.
  virtual Tensor across_experts(const Tensor& x, const Tensor& residual, const Body& body) const {
    return body(x, residual);
  }
  // True if this rank counts the tokens that it routes. If several ranks route the same tokens,
  // only one counts.
  virtual bool counts_routed() const { return true; }
  // Number of tokens of one micro-batch that all ranks route together, if each rank routes `here`.
  virtual int64_t routed_tokens(int64_t here) const { return here; }
  // Sums the counts of ranks that route different tokens of a micro-batch, i32, in place.
  virtual void sum_routed(const Tensor& /*counts*/) const {}
  // Calls products(rows, offsets) on the ranks that hold the experts. Rows are sorted by expert;
  // those of expert e begin at offsets[e].
  using Products = std::function<Tensor(const Tensor& rows, const Tensor& offsets)>;
  virtual Tensor through_experts(const Tensor& rows, const Tensor& offsets,
                                 const Products& products) const {
    return products(rows, offsets);
  }
};

}  // namespace shale::nn
