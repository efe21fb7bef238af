#include "shale/kernels/embedding.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_ids(const char* op, const View& ids) {
  check_dtype(op, "ids", ids, DType::kI32);
  check_contiguous(op, "ids", ids);
  if (ids.ndim() != 2) throw ShapeError(cat(op, ": ids is ", ids, ", expected [B, T]"));
}

void check_table(const char* op, const char* arg, const View& table, int64_t width) {
  check_contiguous(op, arg, table);
  if (table.ndim() == 2 && table.size(1) == width) return;
  throw ShapeError(cat(op, ": ", arg, " is ", table, ", expected [*,", width, "]"));
}

void check_positions(const char* op, const char* arg, const View& positions, const View& ids,
                     int64_t first) {
  if (first >= 0 && first + ids.size(1) <= positions.size(0)) return;
  throw ShapeError(cat(op, ": ", arg, " is ", positions, ", expected rows for the positions ",
                       first, " to ", first + ids.size(1) - 1));
}

void check_rows(const char* op, const View& table, int64_t first, int64_t whole) {
  const int64_t all = whole > 0 ? whole : table.size(0);
  if (first >= 0 && first + table.size(0) <= all) return;
  throw ShapeError(
      cat(op, ": rows ", first, " to ", first + table.size(0) - 1, ", expected rows below ", all));
}

}  // namespace

void check_args(const EmbeddingFwdArgs& a) {
  constexpr const char* kOp = "embedding_fwd";
  check_dtype(kOp, "table", a.table, kComputeDTypes);
  if (a.table.ndim() != 2) throw ShapeError(cat(kOp, ": table is ", a.table, ", expected [V, C]"));
  check_contiguous(kOp, "table", a.table);
  check_rows(kOp, a.table, a.first_row, a.whole_rows);
  check_ids(kOp, a.ids);
  const int64_t C = a.table.size(1);
  if (a.positions.defined()) {
    check_table(kOp, "positions", a.positions, C);
    check_dtype(kOp, "positions", a.positions, a.table.dtype);
    check_positions(kOp, "positions", a.positions, a.ids, a.first_position);
  }
  check_dense(kOp, "y", a.y, {a.ids.size(0), a.ids.size(1), C}, a.table.dtype);
}

void check_args(const EmbeddingBwdArgs& a) {
  constexpr const char* kOp = "embedding_bwd";
  check_ids(kOp, a.ids);
  check_dtype(kOp, "dy", a.dy, kComputeDTypes);
  check_contiguous(kOp, "dy", a.dy);
  if (a.dy.ndim() != 3) throw ShapeError(cat(kOp, ": dy is ", a.dy, ", expected [B, T, C]"));
  const int64_t C = a.dy.size(2);
  check_shape(kOp, "dy", a.dy, {a.ids.size(0), a.ids.size(1), C});
  if (a.d_positions.defined()) {
    check_dtype(kOp, "d_positions", a.d_positions, kGradientDTypes);
    check_table(kOp, "d_positions", a.d_positions, C);
    check_positions(kOp, "d_positions", a.d_positions, a.ids, a.first_position);
  }
  if (a.d_table.defined()) {
    check_dtype(kOp, "d_table", a.d_table, kGradientDTypes);
    check_table(kOp, "d_table", a.d_table, C);
    check_rows(kOp, a.d_table, a.first_row, a.whole_rows);
  }
}

}  // namespace shale::kernels
