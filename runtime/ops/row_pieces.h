#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "shale/kernels/gemm.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The rows of a product, piece by piece, in an order of its own: rows whose inputs are still on
// their way come last, rows whose results somebody waits for first (nn/exchange_pieces.h). No order
// changes bits; other pieces may.
class RowPieces {
 public:
  struct Rows {
    int64_t first = 0, count = 0;
  };

  explicit RowPieces(std::vector<Rows> order) : order_(std::move(order)) {}
  virtual ~RowPieces() = default;
  RowPieces(const RowPieces&) = delete;
  RowPieces& operator=(const RowPieces&) = delete;

  // Every row once.
  const std::vector<Rows>& order() const { return order_; }
  // Returns when what is queued from now on finds the inputs of order()[piece] complete.
  virtual void before(size_t /*piece*/) {}
  // What makes these rows of y has been queued.
  virtual void after(size_t /*piece*/, const Tensor& /*y*/) {}
  // Of all inputs, for who does not go by pieces.
  void wait() {
    for (size_t piece = 0; piece < order_.size(); ++piece) before(piece);
  }

 private:
  const std::vector<Rows> order_;
};

// The pieces of an op's first product, and of its last; null: all rows at once.
struct OpPieces {
  RowPieces* in = nullptr;
  RowPieces* out = nullptr;
};

// kernels::gemm of the rows of each piece; of all at once where both are null. y: the tensor of
// which args.c is the matrix.
void gemm_by_pieces(const kernels::GemmArgs& args, const OpPieces& pieces, const Tensor& y);

}  // namespace shale
