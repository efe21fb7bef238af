#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

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

// Where the ranks meet that have the parts into which the layers of a model are cut
// (nn/sharding.h). Between the layers that are cut a rank has a slice of the rows of a
// micro-batch: of n ranks, rank r has the r-th n-th of all rows [B T, C], as a tensor [B, T / n,
// C]; or, where slices are of whole samples, [B / n, T, C].
//
// A layer that is cut works on all rows with its rank's part of the weights. What it gives is a
// summand of its result: the sums over ranks are binary trees, whatever processes have them, so
// that bits depend on the number of ranks and not on that of processes.
//
// These calls are not recorded; enter() and leave() below are. Collective over the ranks, in one
// order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // Into how many pieces the rows of a layer are cut at most, so that one travels while another is
  // multiplied (comm/parallel/tensor/exchange_pieces.h); 0: as many as ranks. Of products, so that
  // it may change bits where a product's rows round by their number.
  int row_pieces() const { return row_pieces_; }
  void set_row_pieces(int pieces) { row_pieces_ = pieces; }

  // Whether all rows are here, or come in one piece: nothing travels while a layer works.
  virtual bool rows_come_at_once() const { return ranks_ == 1; }

  // Slices are of whole samples: layers that are not cut may look at all of a sample. B is then a
  // multiple of the ranks, and T any number.
  bool has_whole_samples() const { return has_whole_samples_; }
  void set_whole_samples() { has_whole_samples_ = true; }
  // The dimension of a slice, or of all rows, whose size differs between the two.
  int row_dim(const Shape& shape) const { return has_whole_samples_ ? 0 : shape.ndim() - 2; }

  // All rows, of every rank's slice [..., T / n, C].
  virtual Tensor gather(const Tensor& slice) = 0;
  // This rank's slice of the sum over all ranks, rounded once. part: [..., T, C] with all rows,
  // dense.
  virtual Tensor sum_slices(const Tensor& part) = 0;
  // all: [ranks, ...]; this rank has filled its own, others bring theirs.
  virtual void gather_parts(const Tensor& all) = 0;
  // Adds up what all ranks have counted, i32, in place.
  virtual void add_counts(const Tensor& counts) = 0;
  // slices: [ranks, ...], dense, one for each rank; returns what each has for this one.
  virtual Tensor all_to_all(const Tensor& slices) = 0;

  // The same while the caller goes on: what they are given stays as it is until get() of the
  // result, which all ranks call. They arrive in the order of the calls.
  virtual Arrival begin_gather(const Tensor& slice) = 0;
  virtual Arrival begin_sum_slices(const Tensor& part) = 0;
  virtual Arrival begin_gather_parts(const Tensor& all) = 0;
  // x, dense, goes to the rank that is `by` behind this one around the ring, 0 < by < ranks();
  // what arrives in `into`, as large, is that of the rank that is so many before.
  virtual Arrival begin_shift(const Tensor& x, const Tensor& into, int by, ShiftOf of) = 0;
  // The same by one, into new memory.
  virtual Arrival begin_pass(const Tensor& x) = 0;

 protected:
  Exchange(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

 private:
  int ranks_, rank_;
  int row_pieces_ = 0;
  bool has_whole_samples_ = false;
};

// From a slice of the rows to all of them, [B, T, C], whose gradients are added over all ranks. x:
// [B, T / n, C]. Backward gathers the rows again instead of keeping them.
Tensor enter(Exchange& exchange, const Tensor& x);

// The reverse: adds what all ranks have made of all rows. Its gradient is gathered. part: [B, T,
// C]; returns [B, T / n, C]. Throws ShapeError unless the ranks divide T, or B where slices are of
// whole samples.
Tensor leave(Exchange& exchange, const Tensor& part);

// What every rank has, added up over all of them: the same sum on each, whose gradients are added
// over all ranks again. part: f32, dense, a small one: every rank gets those of all.
Tensor sum_over_ranks(Exchange& exchange, const Tensor& part);

// The sum of all ranks' losses, each of rows of its own, by a binary tree. loss: an f32 scalar.
// Collective; the gradient of the sum is that of each.
Tensor sum_losses(Exchange& exchange, const Tensor& loss);

// Where slices are of whole samples: this rank's samples of what has all, [B, ...], dense: a view.
// Throws ShapeError unless the ranks divide B.
Tensor own_samples(const Exchange& exchange, const Tensor& whole);

// What a layer does that ranks share (nn::Distribution::across()): body(rows, residual) of what
// enter() gives, and leave() of the result, to which `residual`, a slice, is added. Rows travel
// while products of others are computed (exchange_pieces.h).
Tensor across(Exchange& exchange, const Tensor& x, const Tensor& residual,
              const nn::Distribution::Body& body);

}  // namespace shale::comm
