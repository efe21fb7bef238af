#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace shale {

class Tensor;

// The rows of a tensor that travels between ranks while products are computed
// (comm/parallel/tensor/exchange_pieces.h), piece by piece, in an order of its own: rows whose
// inputs are still on their way come last, rows whose results somebody waits for first. No order
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
  // Returns when what is queued from now on finds the rows of order()[piece] complete.
  virtual void before(size_t /*piece*/) {}
  // What makes these rows of y has been queued.
  virtual void after(size_t /*piece*/, const Tensor& /*y*/) {}

  // Of all rows, for who does not go by pieces: before(), once.
  void wait() {
    if (!take()) return;
    for (size_t piece = 0; piece < order_.size(); ++piece) before(piece);
  }
  // Whoever gets true waits for the pieces itself; others need not any more.
  bool take() { return !std::exchange(is_taken_, true); }

 private:
  const std::vector<Rows> order_;
  bool is_taken_ = false;
};

}  // namespace shale
