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
// is written for one rank. It calls these functions where it must communicate with the ranks that
// share its weights, sequences or experts. The implementations here are for a single rank that has
// everything. comm::Parallel (comm/parallel/parallel.h) gives models implementations for a device
// mesh; they are collective over the mesh's ranks, and all ranks must call them in the same order.
class Distribution {
 public:
  virtual ~Distribution() = default;

  // ---- Tensor parallelism: layers whose weights are sharded (Parameter::split) ----

  // Runs a layer on the rows of all ranks: all-gathers x to `rows`, calls body(rows, residual),
  // reduce-scatters the sum over ranks of its results, and adds `residual` (may be undefined).
  // Between such layers each rank holds its slice of the rows. x, residual, result: [..., T, C] of
  // this rank; rows: [..., T of all ranks, C].
  //
  // body must pass its `residual` argument to the op that makes its result, or add it if it is
  // defined. With several ranks the argument is a special undefined tensor: it makes the op send
  // finished rows while it computes others. Rows that body reads may still be in transfer, too. A
  // GEMM processes them range by range as they arrive; other ops wait for all.
  using Body = std::function<Tensor(const Tensor& rows, const Tensor& residual)>;
  virtual Tensor across(const Tensor& x, const Tensor& residual, const Body& body) const {
    return body(x, residual);
  }
  // The heads or channels of all ranks are numbered. Returns the number of this rank's first one,
  // if each rank has `count`.
  virtual int64_t first_of(int64_t /*count*/) const { return 0; }
  // Sums `part` over ranks; each rank has computed it from its channels. The result, f32, is on
  // every rank.
  virtual Tensor sum_over_channels(const Tensor& part) const { return part; }
  // Looks up ids [B, T] in a table that has `rows` rows on all ranks together. Calls look_up() for
  // the rows that this rank holds, and combines the results of the ranks.
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
  // Returns a dense view of the samples of `all`, [B, ...], that belong to this rank. Throws
  // ShapeError unless B is divisible by the number of ranks.
  virtual Tensor own_samples(const Tensor& all) const { return all; }
  // gathers the samples of all ranks; not recorded by autograd
  virtual Tensor all_samples(const Tensor& own) const { return own; }
  virtual Tensor sum_over_samples(const Tensor& loss) const { return loss; }

  // ---- Context parallelism: sequences whose tokens are on several ranks ----

  virtual bool shares_sequences() const { return false; }
  // attention() and packed_attention() with the queries of this rank's tokens and the keys of the
  // whole sequences.
  virtual Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionOptions& options = {}) const {
    return shale::attention(q, k, v, options);
  }
  virtual Tensor packed_attention(const Tensor& qkv, int64_t heads,
                                  const AttentionOptions& options = {}) const {
    return shale::packed_attention(qkv, heads, options);
  }
  // Positions of this rank's tokens in `sequences` sequences: [B, T] i32. Undefined if they are 0,
  // 1, ...
  virtual Tensor positions(Context& /*context*/, int64_t /*sequences*/) const { return {}; }
  // Position of this rank's elements x, [B, T, C], in the tensor of all ranks. Dropout needs it for
  // masks that do not depend on the number of ranks. Empty if x consists of whole samples.
  virtual std::vector<DropoutPlace> places_of(const Tensor& /*x*/) const { return {}; }
  Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual = {}) const {
    return shale::dropout(x, p, site, residual, places_of(x));
  }

  // ---- Expert parallelism ----

  // Calls body like across() if every expert is sharded over the ranks. If each rank holds
  // different experts, or there is one rank, calls body on this rank's rows.
  virtual Tensor across_experts(const Tensor& x, const Tensor& residual, const Body& body) const {
    return body(x, residual);
  }
  // True if this rank counts the tokens that it routes. If several ranks route the same tokens, it
  // is true on one of them.
  virtual bool counts_routed() const { return true; }
  // Returns the number of tokens of a micro-batch that all ranks route together, if each rank
  // routes `here` tokens.
  virtual int64_t routed_tokens(int64_t here) const { return here; }
  // Sums `counts`, i32, in place over the ranks that route different tokens of a micro-batch.
  virtual void sum_routed(const Tensor& /*counts*/) const {}
  // Calls products(rows, offsets) on the ranks that hold the experts, with the rows for these
  // experts. Rows are sorted by expert; the rows of expert e begin at offsets[e].
  using Products = std::function<Tensor(const Tensor& rows, const Tensor& offsets)>;
  virtual Tensor through_experts(const Tensor& rows, const Tensor& offsets,
                                 const Products& products) const {
    return products(rows, offsets);
  }
};

}  // namespace shale::nn
