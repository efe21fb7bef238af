#include "shale/runtime/ops/row_pieces.h"

#include "shale/base/error.h"

namespace shale {
namespace {

void take_rows(View& matrix, const RowPieces::Rows& rows) {
  if (!matrix.defined()) return;
  matrix.data = static_cast<char*>(matrix.data) +
                rows.first * matrix.stride(0) * dtype_size(matrix.dtype);
  matrix.shape[0] = rows.count;
}

}  // namespace

void gemm_by_pieces(const kernels::GemmArgs& args, const OpPieces& pieces, const Tensor& y) {
  RowPieces* const by = pieces.out != nullptr ? pieces.out : pieces.in;
  if (by == nullptr) return kernels::gemm(y.exec(), args);
  if (pieces.in != nullptr && pieces.in != by) pieces.in->wait();
  for (size_t piece = 0; piece < by->order().size(); ++piece) {
    by->before(piece);
    kernels::GemmArgs some = args;
    for (View* rows : {&some.a, &some.c, &some.aux, &some.residual, &some.aux_up, &some.c_up}) {
      take_rows(*rows, by->order()[piece]);
    }
    kernels::gemm(y.exec(), some);
    by->after(piece, y);
  }
}

}  // namespace shale
