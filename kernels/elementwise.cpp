#include "shale/kernels/elementwise.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Checks for a contiguous view with this number of elements, in any shape and compute dtype.
void check_operand(const char* op, const char* arg, const View& view, int64_t elements) {
  check_dtype(op, arg, view, kComputeDTypes);
  check_contiguous(op, arg, view);
  if (view.numel() == elements) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, ", expected ", elements, " elements"));
}

void check_same(const char* op, const char* arg, const View& view, const View& like) {
  check_operand(op, arg, view, like.numel());
  check_dtype(op, arg, view, like.dtype);
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

void check_args(const FillArgs& a) {
  check_contiguous("fill", "y", a.y);
}

void check_args(const CopyArgs& a) {
  check_defined("copy", "x", a.x);
  check_shape("copy", "y", a.y, a.x.shape);
  if (a.x.dtype == a.y.dtype) return;
  check_contiguous("copy", "x", a.x);
  check_contiguous("copy", "y", a.y);
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
  if (a.x.ndim() < 1) throw ShapeError(cat(kOp, ": x is ", a.x, ", expected [samples, ...]"));
  if (a.residual.defined()) check_dense(kOp, "residual", a.residual, a.x.shape, a.x.dtype);
  check_dense(kOp, "y", a.y, a.x.shape, a.x.dtype);
  if (!(a.p >= 0.f && a.p < 1.f)) {
    throw InternalError(cat(kOp, ": p is ", a.p, ", expected at least 0 and below 1"));
  }
  // The Philox counter numbers the groups of four elements of a sample in 32 bits.
  const bool is_part = a.sample_elements > 0;
  const int64_t elements =
      is_part || a.x.numel() == 0 ? a.sample_elements : a.x.numel() / a.x.size(0);
  if (elements > int64_t{1} << 34) {
    throw ShapeError(cat(kOp, ": x is ", a.x, ", expected at most 2^34 elements a sample"));
  }
  if (a.first < 0 || a.first % 4 != 0 || a.sample_elements % 4 != 0 || (a.first > 0 && !is_part)) {
    throw ShapeError(cat(kOp, ": x begins at element ", a.first, " and a sample has ",
                         a.sample_elements, " elements, expected multiples of 4"));
  }
}

}  // namespace shale::kernels
