#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace shale {

class Tensor;

// Pieces (ranges of rows) of a tensor whose transfer between ranks overlaps with GEMMs
// (comm/parallel/tensor/exchange_pieces.h). The order of pieces is chosen for the overlap: rows
// whose inputs arrive late come last, rows whose results another rank waits for come first. The
// order does not change results bitwise; another division into pieces may.
class RowPieces {
 public:
  struct Rows {
    int64_t first = 0, count = 0;
  };

  explicit RowPieces(std::vector<Rows> order) : order_(std::move(order)) {}
  virtual ~RowPieces() = default;
  RowPieces(const RowPieces&) = delete;
  RowPieces& operator=(const RowPieces&) = delete;

  // Processing order; contains every row exactly once.
  const std::vector<Rows>& order() const { return order_; }
  // When it returns, work queued from now on sees the rows of order()[piece] complete.
  virtual void before(size_t /*piece*/) {}
  // Call when the work that computes these rows of y has been queued.
  virtual void after(size_t /*piece*/, const Tensor& /*y*/) {}

  // Waits for all pieces, for an op that does not work piece by piece. Only the first call waits.
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
