#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/nn/exchange.h"
#include "shale/runtime/ops/row_pieces.h"

// How the rows of a layer that is cut travel while others of its rows are multiplied. A piece is
// the rows of one leaf's slice, or of several next to each other, whatever ranks there are: so
// products have the same shapes for any number of them. A rank begins with the rows that it has,
// and ends with those that it keeps. Where it has several parts of sequences (row_parts()), the
// rows of each are such pieces, but travel at once.
namespace shale::nn {

// The pieces of so many rows: first rows and counts, in the order of rows. One: they are not cut.
std::vector<RowPieces::Rows> row_pieces(const Exchange& exchange, int64_t rows);

// All rows of every rank's slice, on their way. Collective; waits in the end for what still is.
class EnteringRows : public RowPieces {
 public:
  // slice: dense.
  EnteringRows(Exchange& exchange, const Tensor& slice);
  ~EnteringRows() override;

  // Complete where before() of each piece has returned.
  const Tensor& rows() const { return rows_; }
  void before(size_t piece) override;

 private:
  EnteringRows(Exchange& exchange, const Tensor& slice, const Shape& all);

  Exchange& exchange_;
  Tensor rows_;
  std::vector<Arrival> arrivals_;  // of the rank before this one, of that before it, ...
};

// The sum over leaves of what they make of all rows, each rank its slice. Collective; waits in the
// end for what still travels.
class LeavingRows : public RowPieces {
 public:
  // all: the shape of `rows`, whose last size is any.
  LeavingRows(Exchange& exchange, const Shape& all);
  ~LeavingRows() override;

  void after(size_t piece, const Tensor& y) override;
  // This rank's slice of the sum; parts: as of Exchange::sum_slices(). What was not announced piece
  // by piece travels now. Throws InternalError for parts that are not those that were.
  Tensor sum(const std::vector<Tensor>& parts);

 private:
  Tensor of_rank(const Tensor& rows, int rank) const;
  bool is_made(int rank) const;  // all of what it gets
  void add_leaves(const Rows& rows);
  void send();

  Exchange& exchange_;
  const int64_t count_;           // of rows
  std::vector<Tensor> made_;      // by leaves of this rank, one after another
  std::vector<bool> are_made_;    // leaves' slices of rows, of the last of them
  Tensor mine_;                   // the sum of this rank's leaves
  Tensor theirs_;                 // [ranks - 1, ...]: of the rank before this one, and so on
  std::vector<Arrival> arrivals_;
};

}  // namespace shale::nn
