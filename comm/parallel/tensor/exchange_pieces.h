#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/runtime/tensor/row_pieces.h"

// Overlap of row transfers with GEMMs in a shared layer. A piece has the rows of one rank's slice,
// or of several adjacent slices. A rank first works on its own input rows, which need not arrive.
// Last it works on the output rows that it keeps, which need not be sent.
namespace shale::comm {

// Divides the elements of a dense tensor into `runs` equal ranges, and returns range `run` as a
// view.
Tensor run_of(const Tensor& x, int64_t run, int64_t runs);
// Adds one or more dense tensors of the same dtype as a binary tree, and rounds once to the dtype
// of `sum`. `sum` is dense and has as many elements as each part.
void tree_sum(const std::vector<Tensor>& parts, const Tensor& sum);

// Divides `rows` rows into pieces, in row order. One piece: the rows are not divided.
std::vector<RowPieces::Rows> row_pieces(const Exchange& exchange, int64_t rows);

// All rows of a layer's input, which arrive slice by slice from the other ranks. Collective; waits
// at the end.
class EnteringRows : public RowPieces {
 public:
  // `slice`, this rank's rows, must be dense.
  EnteringRows(Exchange& exchange, const Tensor& slice);
  ~EnteringRows() override;

  // All rows. Those of a piece are complete once before(piece) has returned. Code that reads all
  // rows waits through Storage::rows().
  const Tensor& rows() const { return rows_; }
  void before(size_t piece) override;

 private:
  EnteringRows(Exchange& exchange, const Tensor& slice, const Shape& all);

  Exchange& exchange_;
  Tensor rows_;
  std::vector<Arrival> arrivals_;  // slices of rank r - 1, r - 2, and so on
};

// Adds a layer's partial results for all rows over the ranks; each rank keeps its slice of the sum.
// Collective; waits for transfers at the end.
class LeavingRows : public RowPieces {
 public:
  // `all`: the shape of the layer's input rows. The last dimension of the results may differ from
  // it.
  LeavingRows(Exchange& exchange, const Shape& all);
  ~LeavingRows() override;

  // Residual to pass to the op that makes this rank's partial result (no_residual()).
  const Tensor& residual() const { return residual_; }
  void after(size_t piece, const Tensor& y) override;
  // Returns this rank's slice of the sum over ranks of `part` (Exchange::sum_slices()). Sends the
  // rows that after() did not send. Throws InternalError if `part` was not passed to after().
  Tensor sum(const Tensor& part);

 private:
  Tensor of_rank(const Tensor& rows, int rank) const;
  void send();

  Exchange& exchange_;
  const Tensor residual_;
  const int64_t count_;         // number of rows
  Tensor mine_;                 // this rank's partial result
  std::vector<bool> are_made_;  // for each rank: the part for its slice is computed
  Tensor theirs_;               // [ranks - 1, ...]: parts of ranks r - 1, r - 2, ... for this slice
  std::vector<Arrival> arrivals_;
};

}  // namespace shale::comm
