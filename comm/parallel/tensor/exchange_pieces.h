#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/runtime/tensor/row_pieces.h"

// How the rows of a layer that is cut travel while others of its rows are multiplied. A piece is
// the rows of one rank's slice, or of several next to each other. A rank begins with the rows that
// it has, and ends with those that it keeps.
namespace shale::comm {

// Of `runs` equal runs of a dense tensor the one of this index, as a vector that shares its memory.
Tensor run_of(const Tensor& x, int64_t run, int64_t runs);
// Writes the sum of dense tensors of one dtype, at least one, by a binary tree, rounded once to the
// dtype of `sum`, which is dense and has as many elements as each of them.
void tree_sum(const std::vector<Tensor>& parts, const Tensor& sum);

// The pieces of so many rows: first rows and counts, in the order of rows. One: they are not cut.
std::vector<RowPieces::Rows> row_pieces(const Exchange& exchange, int64_t rows);

// All rows of every rank's slice, on their way. Collective; waits in the end for what still is.
class EnteringRows : public RowPieces {
 public:
  // slice: dense.
  EnteringRows(Exchange& exchange, const Tensor& slice);
  ~EnteringRows() override;

  // Complete where before() of each piece has returned; who reads it waits (Storage::rows()).
  const Tensor& rows() const { return rows_; }
  void before(size_t piece) override;

 private:
  EnteringRows(Exchange& exchange, const Tensor& slice, const Shape& all);

  Exchange& exchange_;
  Tensor rows_;
  std::vector<Arrival> arrivals_;  // of the rank before this one, of that before it, ...
};

// The sum over ranks of what they make of all rows, each rank its slice. Collective; waits in the
// end for what still travels.
class LeavingRows : public RowPieces {
 public:
  // all: the shape of `rows`, whose last size is any.
  LeavingRows(Exchange& exchange, const Shape& all);
  ~LeavingRows() override;

  // What the op is given as a residual whose result is the part (no_residual()).
  const Tensor& residual() const { return residual_; }
  void after(size_t piece, const Tensor& y) override;
  // This rank's slice of the sum; part: as of Exchange::sum_slices(). What was not announced piece
  // by piece travels now. Throws InternalError for a part that is not the one that was.
  Tensor sum(const Tensor& part);

 private:
  Tensor of_rank(const Tensor& rows, int rank) const;
  void send();

  Exchange& exchange_;
  const Tensor residual_;
  const int64_t count_;         // of rows
  Tensor mine_;                 // what this rank makes
  std::vector<bool> are_made_;  // ranks' slices of its rows
  Tensor theirs_;               // [ranks - 1, ...]: of the rank before this one, and so on
  std::vector<Arrival> arrivals_;
};

}  // namespace shale::comm
