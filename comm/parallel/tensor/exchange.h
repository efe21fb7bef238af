#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Result tensor of an asynchronous transfer.
class Arrival {
 public:
  Arrival() = default;  // an Arrival without a tensor
  // finish: waits for the tensor and returns it.
  explicit Arrival(std::function<Tensor()> finish) : finish_(std::move(finish)) {}

  bool defined() const { return static_cast<bool>(finish_) || value_.defined(); }
  // Waits until the tensor is complete for work that is queued afterwards. Later calls return at
  // once.
  const Tensor& get() {
    if (finish_) value_ = std::exchange(finish_, nullptr)();
    return value_;
  }

 private:
  std::function<Tensor()> finish_;
  Tensor value_;
};

// Purpose of a begin_shift(), shown in reports.
enum class ShiftOf : uint8_t {
  kRing,  // keys and values of ring attention
  kRows,  // slices of rows, sent to all ranks
  kSums,  // partial sums, sent to the owners of the slices
};

// Communication between the mesh ranks that share the layers of a model (tensor parallelism,
// nn/sharding.h). Between such layers, rank r of n has the r-th slice of the rows of a micro-batch:
// of [B, T, C] it has [B, T / n, C], or [B / n, T, C] if slices are whole samples.
//
// A shared layer works on all rows with its rank's shard of the weights, and gives a partial sum of
// its result. Sums over ranks are binary trees over mesh ranks, whichever process these are in. The
// bits therefore depend on the number of mesh ranks and not on the number of processes.
//
// Autograd does not record these calls; it records enter() and leave(). All ranks must make the
// same calls in the same order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // Maximum number of pieces into which the rows of a layer are divided; 0: the number of ranks.
  // The transfer of one piece overlaps with the GEMM of another
  // (comm/parallel/tensor/exchange_pieces.h). Pieces divide GEMMs by rows, so they may change bits
  // if a GEMM's rounding depends on its number of rows.
  int row_pieces() const { return row_pieces_; }
  void set_row_pieces(int pieces) { row_pieces_ = pieces; }

  // True if all rows arrive before a layer starts, so that no transfer overlaps with its GEMMs.
  virtual bool rows_come_at_once() const { return ranks_ == 1; }

  // True if slices are whole samples, so that layers that are not shared see all of a sample. B is
  // then a multiple of the number of ranks, and T any number.
  bool has_whole_samples() const { return has_whole_samples_; }
  void set_whole_samples() { has_whole_samples_ = true; }
  // Dimension whose size differs between a slice and all rows.
  int row_dim(const Shape& shape) const { return has_whole_samples_ ? 0 : shape.ndim() - 2; }

  // Gathers every rank's slice [..., T / n, C]. Returns all rows.
  virtual Tensor gather(const Tensor& slice) = 0;
  // Adds `part` over all ranks and returns this rank's slice of the sum, rounded once. part: [...,
  // T, C], all rows, dense.
  virtual Tensor sum_slices(const Tensor& part) = 0;
  // Gathers in place. all: [ranks, ...]. Each rank has filled its own part and receives the others.
  virtual void gather_parts(const Tensor& all) = 0;
  // Adds the i32 counts of all ranks, in place.
  virtual void add_counts(const Tensor& counts) = 0;
  // slices: [ranks, ...], dense, one for each rank. Returns all ranks' slices for this rank.
  virtual Tensor all_to_all(const Tensor& slices) = 0;

  // Asynchronous forms of gather(), sum_slices() and gather_parts(). All ranks call get() of the
  // result; until then the arguments must not change. Transfers complete in the order in which
  // these functions were called.
  virtual Arrival begin_gather(const Tensor& slice) = 0;
  virtual Arrival begin_sum_slices(const Tensor& part) = 0;
  virtual Arrival begin_gather_parts(const Tensor& all) = 0;
  // Sends x, dense, to the rank `by` positions after this one in the ring, 0 < by < ranks().
  // `into`, of the same size, receives the tensor of the rank `by` positions before this one.
  virtual Arrival begin_shift(const Tensor& x, const Tensor& into, int by, ShiftOf of) = 0;
  // begin_shift() by one rank, into a new tensor.
  virtual Arrival begin_pass(const Tensor& x) = 0;

 protected:
  Exchange(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

 private:
  int ranks_, rank_;
  int row_pieces_ = 0;
  bool has_whole_samples_ = false;
};

// Gathers all rows [B, T, C] from slices x: [B, T / n, C]. Backward adds the gradients over all
// ranks. It gathers the rows again instead of keeping them.
Tensor enter(Exchange& exchange, const Tensor& x);

// Adds the partial results of all ranks and returns this rank's slice of the sum. part: [B, T, C];
// returns [B, T / n, C]. Backward gathers the gradient. Throws ShapeError unless the ranks divide
// T, or B if slices are whole samples.
Tensor leave(Exchange& exchange, const Tensor& part);

// Adds `part` over all ranks and returns the sum on each. Backward also adds the gradients over all
// ranks. part: f32, dense, and small, because every rank receives the parts of all ranks.
Tensor sum_over_ranks(Exchange& exchange, const Tensor& part);

// Adds the losses of all ranks as a binary tree. loss: an f32 scalar, over this rank's rows. The
// gradient of each loss is that of the sum. Collective.
Tensor sum_losses(Exchange& exchange, const Tensor& loss);

// Returns this rank's samples of `whole`, [B, ...], dense, as a view. Only if slices are whole
// samples. Throws ShapeError unless the number of ranks divides B.
Tensor own_samples(const Exchange& exchange, const Tensor& whole);

// Runs a shared layer (nn::Distribution::across()). Calls body(rows, residual) on the output of
// enter(), then leave() on its result, and adds `residual`, which is a slice. Transfers of rows
// overlap with GEMMs on other rows (exchange_pieces.h).
Tensor across(Exchange& exchange, const Tensor& x, const Tensor& residual,
              const nn::Distribution::Body& body);

}  // namespace shale::comm
