#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/row_pieces.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::nn {

// A tensor that is on its way.
class Arrival {
 public:
  Arrival() = default;  // nothing
  // finish: waits for it, and gives it.
  explicit Arrival(std::function<Tensor()> finish) : finish_(std::move(finish)) {}

  bool defined() const { return static_cast<bool>(finish_) || value_.defined(); }
  // Returns when what uses the tensor finds it complete; after that at once.
  const Tensor& get() {
    if (finish_) value_ = std::exchange(finish_, nullptr)();
    return value_;
  }

 private:
  std::function<Tensor()> finish_;
  Tensor value_;
};

// What Exchange::begin_shift() moves, for reports.
enum class ShiftOf : uint8_t {
  kRing,  // what goes around
  kRows,  // slices of rows, to all
  kSums,  // summands of slices, to who has them
};

// Where the leaves of a model meet, the parts into which its layers are cut (nn/partition.h): a
// rank has some of them, one after another, and others have the rest. Between the layers that are
// cut, a rank has a slice of the rows of a micro-batch: of n ranks, rank r has the r-th n-th of all
// rows [B T, C], as a tensor [B, T / n, C]; or, where slices are of whole samples, [B / n, T, C].
//
// A layer that is cut works on all rows with its leaves' part of the weights. What it gives on a
// leaf is a summand of its result: the sums over leaves are binary trees, whatever ranks have them,
// so that bits depend on the number of leaves and not on that of ranks.
//
// These calls are not recorded; enter() and leave() below are. Collective over the ranks, in one
// order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  int leaves() const { return leaves_; }
  int first_leaf() const { return first_leaf_; }  // of this rank
  int own_leaves() const { return leaves_ / ranks_; }
  int ranks() const { return ranks_; }
  int rank() const { return first_leaf_ / own_leaves(); }
  // Where sequences are cut as well (nn/cut_sequence.h), and this rank has several of their leaves:
  // rows are so many equal parts, one behind the other, and each is cut into slices by itself.
  int row_parts() const { return row_parts_; }
  void set_row_parts(int parts) { row_parts_ = parts; }

  // Into how many pieces the rows of a layer are cut at most, so that one travels while another is
  // multiplied (nn/exchange_pieces.h); 0: as many as leaves. Of products, so that it may change
  // bits where a product's rows round by their number.
  int row_pieces() const { return row_pieces_; }
  void set_row_pieces(int pieces) { row_pieces_ = pieces; }

  // Whether all rows are here, or come in one piece: nothing travels while a layer works.
  virtual bool rows_come_at_once() const { return ranks_ == 1 || row_parts_ > 1; }

  // Slices are of whole samples: layers that are not cut may look at all of a sample. B is then a
  // multiple of the leaves, and T any number.
  bool has_whole_samples() const { return has_whole_samples_; }
  void set_whole_samples() { has_whole_samples_ = true; }
  // The dimension of a slice, or of all rows, whose size differs between the two.
  int row_dim(const Shape& shape) const { return has_whole_samples_ ? 0 : shape.ndim() - 2; }

  // All rows, of every rank's slice [..., T / n, C].
  virtual Tensor gather(const Tensor& slice) = 0;
  // This rank's slice of the sum over all leaves; parts: those of this rank's leaves, [..., T, C]
  // with all rows, dense and of one dtype, in which the sum is rounded once.
  virtual Tensor sum_slices(const std::vector<Tensor>& parts) = 0;
  // all: [leaves, ...]; this rank has filled its leaves', others bring theirs.
  virtual void gather_leaves(const Tensor& all) = 0;
  // Adds up what all ranks have counted, i32, in place.
  virtual void add_counts(const Tensor& counts) = 0;
  // slices: [ranks, ...], dense, one for each rank; returns what each has for this one.
  virtual Tensor all_to_all(const Tensor& slices) = 0;

  // The same while the caller goes on: what they are given stays as it is until get() of the
  // result, which all ranks call. They arrive in the order of the calls.
  virtual Arrival begin_gather(const Tensor& slice) = 0;
  virtual Arrival begin_sum_slices(const std::vector<Tensor>& parts) = 0;
  virtual Arrival begin_gather_leaves(const Tensor& all) = 0;
  // x, dense, goes to the rank that is `by` behind this one around the ring, 0 < by < ranks();
  // what arrives in `into`, as large, is that of the rank that is so many before.
  virtual Arrival begin_shift(const Tensor& x, const Tensor& into, int by, ShiftOf of) = 0;
  // The same by one, into new memory.
  virtual Arrival begin_pass(const Tensor& x) = 0;

 protected:
  Exchange(int leaves, int ranks, int rank)
      : leaves_(leaves), ranks_(ranks), first_leaf_(rank * (leaves / ranks)) {}

 private:
  int leaves_, ranks_, first_leaf_;
  int row_parts_ = 1;
  int row_pieces_ = 0;
  bool has_whole_samples_ = false;
};

// From a slice of the rows to all of them, one tensor [B, T, C] for each leaf of this rank; they
// are the same values, and their gradients are added over all leaves. x: [B, T / n, C]. Backward
// gathers the rows again instead of keeping them.
std::vector<Tensor> enter(Exchange& exchange, const Tensor& x);

// The reverse: adds what this rank's leaves, and all others, have made of all rows. Its gradient is
// gathered. parts: [B, T, C] each; returns [B, T / n, C]. Throws ShapeError unless the ranks divide
// T, or B where slices are of whole samples.
Tensor leave(Exchange& exchange, const std::vector<Tensor>& parts);

// What every leaf has, added up over all of them: the same sum for each leaf of this rank, whose
// gradients are added over all leaves again. parts: those of this rank's leaves, f32, dense and of
// one shape, small ones: every rank gets those of all leaves.
std::vector<Tensor> sum_over_leaves(Exchange& exchange, const std::vector<Tensor>& parts);

// The sum of all leaves' losses, each of rows of its own, by a binary tree. losses: f32 scalars of
// this rank's leaves. Collective; the gradient of the sum is that of each.
Tensor sum_losses(Exchange& exchange, const std::vector<Tensor>& losses);

// The parameters of the tree that the model has which nobody cut: of this rank's leaves of one, the
// first.
std::vector<Parameter*> whole_parameters(const Module& module);

// ---- Where slices are of whole samples; exchange null: all are one leaf's ----

// This rank's samples of what has all, [B, ...], dense: a view. Throws ShapeError unless the leaves
// divide B.
Tensor own_samples(const Exchange* exchange, const Tensor& whole);
// What layers do that every leaf has whole, each with its own samples: body(inputs, leaf) for each
// leaf of this rank, with its part of each input, which are slices [B / n, ...].
using SamplesBody = std::function<Tensor(const std::vector<Tensor>& inputs, size_t leaf)>;
std::vector<Tensor> for_each_leaf(const Exchange* exchange, const std::vector<Tensor>& inputs,
                                  const SamplesBody& body);
// The same, one behind the other.
Tensor over_samples(const Exchange* exchange, const std::vector<Tensor>& inputs,
                    const SamplesBody& body);

// What a layer that is cut does: body(rows, leaf, residual) for each leaf of this rank, with what
// enter() gives and the number of the leaf among this rank's, and leave() of the results, to which
// `residual`, a slice, is added. exchange null: the model is not cut; body(x, 0, residual).
using LeafBody = std::function<Tensor(const Tensor& rows, size_t leaf, const Tensor& residual)>;
Tensor over_leaves(Exchange* exchange, const Tensor& x, const Tensor& residual,
                   const LeafBody& body);
// The same of a body that makes the results of all leaves of this rank at once, of the rows of
// each.
using LeavesBody =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& rows, const Tensor& residual)>;
Tensor over_all_leaves(Exchange* exchange, const Tensor& x, const Tensor& residual,
                       const LeavesBody& body);

// The same while rows travel. `pieces.in` goes to the first op that reads the rows, for each leaf;
// before another reads them, pieces.in->wait(). `pieces.out` goes to the op whose result is the
// leaf's, or to none of any leaf. Both are null where the model is not cut.
using PiecedBody = std::function<Tensor(const Tensor& rows, size_t leaf, const Tensor& residual,
                                        const OpPieces& pieces)>;
Tensor over_leaves_by_pieces(Exchange* exchange, const Tensor& x, const Tensor& residual,
                             const PiecedBody& body);
using PiecedLeavesBody = std::function<std::vector<Tensor>(
    const std::vector<Tensor>& rows, const Tensor& residual, const OpPieces& pieces)>;
Tensor over_all_leaves_by_pieces(Exchange* exchange, const Tensor& x, const Tensor& residual,
                                 const PiecedLeavesBody& body);

}  // namespace shale::nn
