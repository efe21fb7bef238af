#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/runtime/tensor/row_pieces.h"

// Overlap of row transfers with GEMMs in a shared layer. A piece has the rows of one rank's slice,
// or of several adjacent slices. A rank starts with its own rows, and ends with rows that it keeps.
namespace shale::comm {

// Divides a dense tensor into `runs` equal runs of elements, and returns run `run` as a view.
Tensor run_of(const Tensor& x, int64_t run, int64_t runs);
// Adds `parts`, dense tensors of one dtype, as a binary tree, and rounds once to the dtype of
// `sum`, which is dense and has as many elements as each part. There must be at least one part.
void tree_sum(const std::vector<Tensor>& parts, const Tensor& sum);

// Divides `rows` rows into pieces, in row order. One piece: the rows are not divided.
std::vector<RowPieces::Rows> row_pieces(const Exchange& exchange, int64_t rows);

// All rows of a layer's input, while the other ranks' slices arrive. Collective; waits at the end.
class EnteringRows : public RowPieces {
 public:
  // `slice`, this rank's rows, must be dense.
  EnteringRows(Exchange& exchange, const Tensor& slice);
  ~EnteringRows() override;

  // Rows of a piece are complete once before(piece) has returned; readers of all rows wait through
  // Storage::rows().
  const Tensor& rows() const { return rows_; }
  void before(size_t piece) override;

 private:
  EnteringRows(Exchange& exchange, const Tensor& slice, const Shape& all);

  Exchange& exchange_;
  Tensor rows_;
  std::vector<Arrival> arrivals_;  // slices of the previous rank, of the one before it, and so on
};

// Sum over ranks of a layer's partial results for all rows, of which each rank keeps its slice.
// Collective; waits for transfers at the end.
class LeavingRows : public RowPieces {
 public:
  // `all` has the shape of the layer's input rows; its last size may differ.
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
  std::vector<bool> are_made_;  // by rank: its slice has been computed here
  Tensor theirs_;               // [ranks - 1, ...]: slices of the previous rank, and so on back
  std::vector<Arrival> arrivals_;
};

}  // namespace shale::comm
