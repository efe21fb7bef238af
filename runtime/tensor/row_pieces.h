#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace shale {

class Tensor;

// Ranges of rows (pieces) of a tensor. Their transfer between ranks overlaps with GEMMs
// (comm/parallel/tensor/exchange_pieces.h). The order of pieces is chosen for the overlap: rows
// whose inputs arrive late come last, and rows whose results another rank waits for come first. The
// order does not change a bit of the results; another division into pieces may.
class RowPieces {
 public:
  struct Rows {
    int64_t first = 0, count = 0;
  };

  explicit RowPieces(std::vector<Rows> order) : order_(std::move(order)) {}
  virtual ~RowPieces() = default;
  RowPieces(const RowPieces&) = delete;
  RowPieces& operator=(const RowPieces&) = delete;

  // Pieces in the order in which to process them. They contain every row exactly once.
  const std::vector<Rows>& order() const { return order_; }
  // Call this before queueing work that reads the rows of order()[piece]. The work then waits for
  // these rows.
  virtual void before(size_t /*piece*/) {}
  // Call this after queueing the work that computes the rows order()[piece] of y.
  virtual void after(size_t /*piece*/, const Tensor& /*y*/) {}

  // Waits for all pieces, for an op that does not process them one by one. Only the first call
  // waits.
  void wait() {
    if (!take()) return;
    for (size_t piece = 0; piece < order_.size(); ++piece) before(piece);
  }
  // Returns true to the first caller, which must then wait for the pieces itself. Later callers get
  // false and need not wait.
  bool take() { return !std::exchange(is_taken_, true); }

 private:
  const std::vector<Rows> order_;
  bool is_taken_ = false;
};

}  // namespace shale
