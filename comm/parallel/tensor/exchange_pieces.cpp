#include "shale/comm/parallel/tensor/exchange_pieces.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

using Rows = RowPieces::Rows;

// Minimum number of rows of a piece. With fewer rows, a separate GEMM call does not pay off.
constexpr int64_t kLeastRows = 64;

int64_t rows_of(const Shape& shape) {
  const int64_t columns = shape.at(-1);
  return columns == 0 ? 0 : shape.numel() / columns;
}

Shape times_rows(const Exchange& exchange, Shape shape, int64_t ranks) {
  shape[exchange.row_dim(shape)] *= ranks;
  return shape;
}

int before(const Exchange& exchange, int by) {
  return (exchange.rank() - by + exchange.ranks()) % exchange.ranks();
}
int behind(const Exchange& exchange, int by) {
  return (exchange.rank() + by) % exchange.ranks();
}

// Returns the first rank that has rows of the piece, and one past the last such rank.
std::pair<int, int> ranks_of(const Exchange& exchange, const Rows& piece, int64_t rows) {
  const int64_t of_rank = rows / exchange.ranks();
  return {static_cast<int>(piece.first / of_rank),
          static_cast<int>((piece.first + piece.count - 1) / of_rank) + 1};
}

// Returns the pieces in the order in which their last rows arrive.
std::vector<Rows> as_they_come(const Exchange& exchange, int64_t rows) {
  std::vector<Rows> order = row_pieces(exchange, rows);
  const auto last = [&](const Rows& piece) {
    int step = 0;
    const auto [from, to] = ranks_of(exchange, piece, rows);
    for (int rank = from; rank < to; ++rank) {
      step = std::max(step, (exchange.rank() - rank + exchange.ranks()) % exchange.ranks());
    }
    return step;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Rows& a, const Rows& b) { return last(a) < last(b); });
  return order;
}

// Returns the pieces in the order in which their first rows are sent. Pieces that this rank keeps
// come last.
std::vector<Rows> as_they_go(const Exchange& exchange, int64_t rows) {
  std::vector<Rows> order = row_pieces(exchange, rows);
  const auto first = [&](const Rows& piece) {
    int step = exchange.ranks();
    const auto [from, to] = ranks_of(exchange, piece, rows);
    for (int rank = from; rank < to; ++rank) {
      const int by = (rank - exchange.rank() + exchange.ranks()) % exchange.ranks();
      if (by != 0) step = std::min(step, by);
    }
    return step;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Rows& a, const Rows& b) { return first(a) < first(b); });
  return order;
}

// Waits for transfers in flight, which still use the memory. Also called while an error ends the
// step.
void wait_for(std::vector<Arrival>& arrivals) noexcept {
  for (Arrival& arrival : arrivals) {
    try {
      arrival.get();
    } catch (const std::exception&) {
      return;  // another call reports this error
    }
  }
}

}  // namespace

Tensor run_of(const Tensor& x, int64_t run, int64_t runs) {
  const int64_t count = x.numel() / runs;
  return x.alias({count}, {1}, run * count);
}

void tree_sum(const std::vector<Tensor>& parts, const Tensor& sum) {
  std::vector<const void*> inputs;
  for (const Tensor& part : parts) inputs.push_back(part.data());
  void* const output = sum.data();
  kernels::tree_sum(sum.exec(), {.inputs = inputs,
                                 .outputs = std::span(&output, 1),
                                 .count = sum.numel(),
                                 .in_dtype = parts[0].dtype(),
                                 .out_dtype = sum.dtype()});
}

std::vector<Rows> row_pieces(const Exchange& exchange, int64_t rows) {
  const int64_t ranks = exchange.ranks();
  int64_t pieces =
      exchange.row_pieces() == 0 ? ranks : std::min<int64_t>(ranks, exchange.row_pieces());
  while (pieces > 1 && (ranks % pieces != 0 || rows % ranks != 0 || rows / pieces < kLeastRows)) {
    --pieces;
  }
  std::vector<Rows> cut;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    cut.push_back({.first = piece * (rows / pieces), .count = rows / pieces});
  }
  return cut;
}

EnteringRows::EnteringRows(Exchange& exchange, const Tensor& slice)
    : EnteringRows(exchange, slice, times_rows(exchange, slice.shape(), exchange.ranks())) {}

EnteringRows::EnteringRows(Exchange& exchange, const Tensor& slice, const Shape& all)
    : RowPieces(as_they_come(exchange, rows_of(all))), exchange_(exchange) {
  if (order().size() == 1 || exchange.rows_come_at_once()) {
    rows_ = exchange.ranks() > 1 ? exchange.gather(slice) : slice;
    if (order().size() > 1) rows_.storage()->set_rows(this);
    return;
  }
  rows_ = empty(slice.context(), all, slice.dtype());
  const Tensor own = run_of(rows_, exchange.rank(), exchange.ranks());
  kernels::copy(rows_.exec(), {.x = slice.alias({slice.numel()}, {1}), .y = own});
  for (int by = 1; by < exchange.ranks(); ++by) {
    const Tensor into = run_of(rows_, comm::before(exchange, by), exchange.ranks());
    arrivals_.push_back(exchange.begin_shift(own, into, by, ShiftOf::kRows));
  }
  rows_.storage()->set_rows(this);
}

EnteringRows::~EnteringRows() {
  if (rows_.defined() && rows_.storage()->rows() == this) rows_.storage()->set_rows(nullptr);
  wait_for(arrivals_);
}

void EnteringRows::before(size_t piece) {
  if (arrivals_.empty()) return;
  const auto [from, to] = ranks_of(exchange_, order()[piece], rows_of(rows_.shape()));
  for (int by = 1; by < exchange_.ranks(); ++by) {
    const int rank = comm::before(exchange_, by);
    if (rank >= from && rank < to) arrivals_[static_cast<size_t>(by - 1)].get();
  }
}

LeavingRows::LeavingRows(Exchange& exchange, const Shape& all)
    : RowPieces(as_they_go(exchange, rows_of(all))),
      exchange_(exchange),
      residual_(no_residual(*this)),
      count_(rows_of(all)),
      are_made_(static_cast<size_t>(exchange.ranks())) {}

LeavingRows::~LeavingRows() {
  residual_.impl().rows_of_sum = nullptr;  // the residual may outlive this object
  wait_for(arrivals_);
}

Tensor LeavingRows::of_rank(const Tensor& rows, int rank) const {
  return run_of(rows, rank, exchange_.ranks());
}

void LeavingRows::after(size_t piece, const Tensor& y) {
  if (order().size() == 1 || exchange_.rows_come_at_once()) return;
  const Rows& rows = order()[piece];
  const int64_t ranks = exchange_.ranks(), of_rank = count_ / ranks;
  if (piece == 0) {
    mine_ = y;
    theirs_ = empty(y.context(), {ranks - 1, y.numel() / ranks}, y.dtype());
  }
  for (int64_t rank = rows.first / of_rank; rank * of_rank < rows.first + rows.count; ++rank) {
    are_made_[static_cast<size_t>(rank)] = true;
  }
  send();
}

void LeavingRows::send() {
  const int64_t others = exchange_.ranks() - 1;
  while (static_cast<int64_t>(arrivals_.size()) < others) {
    const auto by = static_cast<int>(arrivals_.size()) + 1;
    const int to = behind(exchange_, by);
    if (!are_made_[static_cast<size_t>(to)]) return;
    arrivals_.push_back(exchange_.begin_shift(of_rank(mine_, to), run_of(theirs_, by - 1, others),
                                              by, ShiftOf::kSums));
  }
}

Tensor LeavingRows::sum(const Tensor& part) {
  if (arrivals_.empty()) return exchange_.sum_slices(part);
  const bool is_that = part.data() == mine_.data() && part.shape() == mine_.shape();
  if (!is_that || arrivals_.size() + 1 != static_cast<size_t>(exchange_.ranks())) {
    throw InternalError(
        "across: the residual was passed to an op whose result is not the result of the layer; "
        "pass it to the last op of the layer, or do not use it");
  }
  const int64_t others = exchange_.ranks() - 1;
  std::vector<Tensor> of_ranks(static_cast<size_t>(exchange_.ranks()));
  of_ranks[static_cast<size_t>(exchange_.rank())] = of_rank(mine_, exchange_.rank());
  for (int by = 1; by <= others; ++by) {
    arrivals_[static_cast<size_t>(by - 1)].get();
    of_ranks[static_cast<size_t>(comm::before(exchange_, by))] = run_of(theirs_, by - 1, others);
  }
  Shape shape = part.shape();
  shape[exchange_.row_dim(shape)] /= exchange_.ranks();
  Tensor sum = empty(mine_.context(), shape, part.dtype());
  tree_sum(of_ranks, sum.alias({sum.numel()}, {1}));
  return sum;
}

}  // namespace shale::comm
