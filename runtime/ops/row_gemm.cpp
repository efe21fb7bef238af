#include "shale/runtime/ops/row_gemm.h"

#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/tensor/row_pieces.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

void take_rows(View& matrix, const RowPieces::Rows& rows) {
  if (!matrix.defined()) return;
  matrix.data =
      static_cast<char*>(matrix.data) + rows.first * matrix.stride(0) * dtype_size(matrix.dtype);
  matrix.shape[0] = rows.count;
}

// Returns `pieces` if they cover exactly the rows of x, else null.
RowPieces* of_all_rows(RowPieces* pieces, const Tensor& x) {
  if (pieces == nullptr || x.impl().offset != 0 || x.size(-1) == 0) return nullptr;
  int64_t rows = 0;
  for (const RowPieces::Rows& some : pieces->order()) rows += some.count;
  return rows == x.numel() / x.size(-1) ? pieces : nullptr;
}

}  // namespace

void row_gemm(const Tensor& x, const Tensor& residual, const Tensor& y, kernels::GemmArgs args) {
  RowPieces* const in = of_all_rows(x.storage() != nullptr ? x.storage()->rows() : nullptr, x);
  RowPieces* const out = of_all_rows(rows_of_sum(residual), y);
  RowPieces* const by = out != nullptr ? out : in;
  const bool waits = by != nullptr && by == in && in->take();
  args.a = as_matrix(x);
  args.c = as_matrix(y);
  if (residual.defined()) args.residual = as_matrix(residual);
  if (by == nullptr) return kernels::gemm(y.exec(), args);
  for (size_t piece = 0; piece < by->order().size(); ++piece) {
    if (waits) by->before(piece);
    kernels::GemmArgs some = args;
    for (View* rows : {&some.a, &some.c, &some.aux, &some.residual, &some.aux_up, &some.c_up}) {
      take_rows(*rows, by->order()[piece]);
    }
    kernels::gemm(y.exec(), some);
    by->after(piece, y);
  }
}

}  // namespace shale
