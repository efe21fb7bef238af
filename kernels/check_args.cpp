#include "shale/kernels/check_args.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// ---- Elementwise ----

// Contiguous and of so many elements, in any shape and compute dtype.
void check_operand(const char* op, const char* arg, const View& view, int64_t elements) {
  check_dtype(op, arg, view, kComputeDTypes);
  check_contiguous(op, arg, view);
  if (view.numel() == elements) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, ", want ", elements, " elements"));
}

void check_same(const char* op, const char* arg, const View& view, const View& like) {
  check_operand(op, arg, view, like.numel());
  check_dtype(op, arg, view, like.dtype);
}

// ---- Norms: every view is [rows, C] like the main one, whatever its leading dimensions are ----

void check_main(const char* op, const char* arg, const View& main) {
  check_dtype(op, arg, main, kComputeDTypes);
  check_contiguous(op, arg, main);
  if (main.ndim() >= 1 && main.cols() > 0) return;
  throw ShapeError(cat(op, ": ", arg, " is ", main, ", want [rows, C] with C > 0"));
}

void check_like(const char* op, const char* arg, const View& view, const View& main) {
  check_dense(op, arg, view, main.shape, main.dtype);
}

void check_rows(const char* op, const char* arg, const View& view, const View& main) {
  check_dtype(op, arg, view, DType::kF32);
  check_contiguous(op, arg, view);
  if (view.numel() == main.rows()) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, ", want ", main.rows(), " rows"));
}

// What LayerNorm and RMSNorm have in common.
template <class Args>
void check_norm_fwd(const char* op, const Args& a) {
  check_main(op, "x", a.x);
  if (a.residual.defined()) {
    check_like(op, "residual", a.residual, a.x);
    check_defined(op, "sum", a.sum);
  }
  if (a.sum.defined()) check_like(op, "sum", a.sum, a.x);
  check_dense(op, "gain", a.gain, {a.x.cols()}, a.x.dtype);
  check_like(op, "y", a.y, a.x);
  check_rows(op, "rstd", a.rstd, a.x);
}
void check_gradient(const char* op, const char* arg, const View& view, int64_t cols) {
  check_dtype(op, arg, view, kGradientDTypes);
  check_dense(op, arg, view, {cols}, view.dtype);
}
template <class Args>
void check_norm_bwd(const char* op, const Args& a) {
  check_main(op, "dy", a.dy);
  check_like(op, "s", a.s, a.dy);
  check_dense(op, "gain", a.gain, {a.dy.cols()}, a.dy.dtype);
  check_rows(op, "rstd", a.rstd, a.dy);
  if (a.d_sum.defined()) check_like(op, "d_sum", a.d_sum, a.dy);
  check_like(op, "dx", a.dx, a.dy);
  if (a.dgain.defined()) check_gradient(op, "dgain", a.dgain, a.dy.cols());
}

// ---- Embedding ----

void check_ids(const char* op, const View& ids) {
  check_dtype(op, "ids", ids, DType::kI32);
  check_contiguous(op, "ids", ids);
  if (ids.ndim() != 2) throw ShapeError(cat(op, ": ids is ", ids, ", want [B, T]"));
}

void check_table(const char* op, const char* arg, const View& table, int64_t width) {
  check_contiguous(op, arg, table);
  if (table.ndim() == 2 && table.size(1) == width) return;
  throw ShapeError(cat(op, ": ", arg, " is ", table, ", want [*,", width, "]"));
}

void check_positions(const char* op, const char* arg, const View& positions, const View& ids,
                     int64_t first) {
  if (first >= 0 && first + ids.size(1) <= positions.size(0)) return;
  throw ShapeError(cat(op, ": ", arg, " is ", positions, ", ids use positions ", first, " to ",
                       first + ids.size(1) - 1));
}

}  // namespace

void check_args(const AxpbyArgs& a) {
  check_operand("axpby", "y", a.y, a.y.numel());
  check_operand("axpby", "a", a.a, a.y.numel());
  if (a.b.defined()) check_operand("axpby", "b", a.b, a.y.numel());
}

void check_args(const MulArgs& a) {
  check_operand("mul", "y", a.y, a.y.numel());
  check_operand("mul", "a", a.a, a.y.numel());
  check_operand("mul", "b", a.b, a.b.defined() && a.b.numel() == 1 ? 1 : a.y.numel());
}

void check_args(const CopyArgs& a) {
  check_defined("copy", "x", a.x);
  check_shape("copy", "y", a.y, a.x.shape);
  check_dtype("copy", "y", a.y, a.x.dtype);
}

void check_args(const FillArgs& a) {
  check_contiguous("fill", "y", a.y);
}

void check_args(const GeluFwdArgs& a) {
  check_operand("gelu_fwd", "x", a.x, a.x.numel());
  check_same("gelu_fwd", "y", a.y, a.x);
}

void check_args(const GeluBwdArgs& a) {
  check_operand("gelu_bwd", "x", a.x, a.x.numel());
  check_same("gelu_bwd", "dy", a.dy, a.x);
  check_same("gelu_bwd", "dx", a.dx, a.x);
}

void check_args(const SwiGluFwdArgs& a) {
  check_operand("swiglu_fwd", "gate", a.gate, a.gate.numel());
  check_same("swiglu_fwd", "up", a.up, a.gate);
  check_same("swiglu_fwd", "y", a.y, a.gate);
}

void check_args(const DropoutArgs& a) {
  constexpr const char* kOp = "dropout";
  check_dtype(kOp, "x", a.x, kComputeDTypes);
  check_contiguous(kOp, "x", a.x);
  if (a.x.ndim() < 1) throw ShapeError(cat(kOp, ": x is ", a.x, ", want [samples, ...]"));
  if (a.residual.defined()) check_dense(kOp, "residual", a.residual, a.x.shape, a.x.dtype);
  check_dense(kOp, "y", a.y, a.x.shape, a.x.dtype);
  if (!(a.p >= 0.f && a.p < 1.f)) {
    throw InternalError(cat(kOp, ": p is ", a.p, ", want at least 0 and below 1"));
  }
  // A counter's first word counts groups of four elements.
  if (a.x.numel() > 0 && a.x.numel() / a.x.size(0) > int64_t{1} << 34) {
    throw ShapeError(cat(kOp, ": x is ", a.x, ", want at most 2^34 elements a sample"));
  }
}

void check_args(const LayerNormFwdArgs& a) {
  constexpr const char* kOp = "layer_norm_fwd";
  check_norm_fwd(kOp, a);
  if (a.bias.defined()) check_dense(kOp, "bias", a.bias, {a.x.cols()}, a.x.dtype);
  check_rows(kOp, "mean", a.mean, a.x);
}

void check_args(const LayerNormBwdArgs& a) {
  constexpr const char* kOp = "layer_norm_bwd";
  check_norm_bwd(kOp, a);
  check_rows(kOp, "mean", a.mean, a.dy);
  if (a.dbias.defined()) check_gradient(kOp, "dbias", a.dbias, a.dy.cols());
}

void check_args(const RmsNormFwdArgs& a) {
  check_norm_fwd("rms_norm_fwd", a);
}

void check_args(const RmsNormBwdArgs& a) {
  check_norm_bwd("rms_norm_bwd", a);
}

void check_args(const CrossEntropyArgs& a) {
  constexpr const char* kOp = "cross_entropy";
  check_dtype(kOp, "logits", a.logits, kComputeDTypes);
  if (a.logits.ndim() != 2 || (a.logits.cols() != 1 && a.logits.stride(1) != 1)) {
    throw ShapeError(cat(kOp, ": logits is ", a.logits, " with strides ", a.logits.strides,
                         ", want [rows, vocabulary] with contiguous rows"));
  }
  const int64_t rows = a.logits.size(0);
  check_dense(kOp, "targets", a.targets, {rows}, DType::kI32);
  check_dense(kOp, "losses", a.losses, {rows}, DType::kF32);
  if (a.vocab < 1 || a.vocab > a.logits.cols()) {
    throw ShapeError(
        cat(kOp, ": vocab is ", a.vocab, ", logits have ", a.logits.cols(), " columns"));
  }
}

void check_args(const EmbeddingFwdArgs& a) {
  constexpr const char* kOp = "embedding_fwd";
  check_dtype(kOp, "table", a.table, kComputeDTypes);
  if (a.table.ndim() != 2) throw ShapeError(cat(kOp, ": table is ", a.table, ", want [V, C]"));
  check_contiguous(kOp, "table", a.table);
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
  if (a.dy.ndim() != 3) throw ShapeError(cat(kOp, ": dy is ", a.dy, ", want [B, T, C]"));
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
  }
}

void check_args(const ColumnSumArgs& a) {
  constexpr const char* kOp = "column_sum";
  check_dtype(kOp, "x", a.x, kComputeDTypes);
  if (a.x.ndim() != 2 || (a.x.size(1) > 1 && a.x.stride(1) != 1)) {
    throw ShapeError(cat(kOp, ": x is ", a.x, " with strides ", a.x.strides,
                         ", want [rows, C] with contiguous rows"));
  }
  check_gradient(kOp, "y", a.y, a.x.size(1));
}

void check_args(const SumArgs& a) {
  constexpr const char* kOp = "sum";
  check_dtype(kOp, "x", a.x, DType::kF32);
  check_contiguous(kOp, "x", a.x);
  check_dtype(kOp, "y", a.y, DType::kF32);
  if (a.y.numel() != 1) throw ShapeError(cat(kOp, ": y is ", a.y, ", want one element"));
}

void check_args(const SumSquaresArgs& a) {
  constexpr const char* kOp = "sum_squares";
  check_dtype(kOp, "x", a.x, {DType::kF32, DType::kBF16});
  check_contiguous(kOp, "x", a.x);
  if (a.sum == nullptr) throw InternalError(cat(kOp, ": sum is null"));
}

void check_args(const ClipFactorArgs& a) {
  if (a.sum == nullptr) throw InternalError("clip_factor: sum is null");
}

void check_args(const TreeSumArgs& a) {
  if (a.inputs.empty()) throw ShapeError("tree_sum: no inputs, want one or more");
  if (a.inputs.size() == 1 && a.in_dtype == a.out_dtype) return;
  const auto is_narrow = [](DType dtype) { return is_float(dtype) && dtype != DType::kF64; };
  const bool wide =
      a.in_dtype == a.out_dtype &&
      (a.in_dtype == DType::kF64 || a.in_dtype == DType::kI32 || a.in_dtype == DType::kI64);
  if (wide || (is_narrow(a.in_dtype) && is_narrow(a.out_dtype))) return;
  throw DTypeError(
      cat("tree_sum: cannot add ", dtype_name(a.in_dtype), " into ", dtype_name(a.out_dtype)));
}

void check_args(const RandomNormalArgs& a) {
  constexpr const char* kOp = "random_normal";
  check_dtype(kOp, "y", a.y, kComputeDTypes);
  check_contiguous(kOp, "y", a.y);
  if (a.first < 0) throw ShapeError(cat(kOp, ": first is ", a.first, ", want 0 or more"));
}

}  // namespace shale::kernels
