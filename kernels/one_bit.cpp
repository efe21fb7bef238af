#include "shale/kernels/one_bit.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_packed(const char* op, const View& packed, int64_t elements) {
  check_dense(op, "packed", packed, {sign_blocks(elements), kSignWords}, DType::kI32);
}

void check_vector(const char* op, const char* arg, const View& vector, int64_t elements) {
  check_dense(op, arg, vector, {elements}, DType::kF32);
}

}  // namespace

void check_args(const SignPackArgs& a) {
  constexpr const char* kOp = "sign_pack";
  const int64_t n = a.value.numel();
  check_vector(kOp, "value", a.value, n);
  check_vector(kOp, "mask", a.mask, n);
  check_vector(kOp, "owed", a.owed, n);
  check_packed(kOp, a.packed, n);
  if (!a.grad.defined()) return;
  check_dtype(kOp, "grad", a.grad, {DType::kF32, DType::kBF16});
  check_dense(kOp, "grad", a.grad, {n}, a.grad.dtype);
}

void check_args(const SignMeanArgs& a) {
  constexpr const char* kOp = "sign_mean";
  const int64_t n = a.owed.numel();
  check_vector(kOp, "owed", a.owed, n);
  check_vector(kOp, "mask", a.mask, n);
  check_packed(kOp, a.packed, n);
  check_defined(kOp, "parts", a.parts);
  check_dtype(kOp, "parts", a.parts, DType::kI32);
  const int64_t parts = a.parts.ndim() == 3 ? a.parts.size(0) : 0;
  check_shape(kOp, "parts", a.parts, {parts, sign_blocks(n), kSignWords});
  if (parts < 1 || a.parts.stride(1) != kSignWords || a.parts.stride(2) != 1) {
    throw ShapeError(cat(kOp, ": parts are ", a.parts, ", expected one or more dense parts"));
  }
}

void check_args(const SignUnpackArgs& a) {
  constexpr const char* kOp = "sign_unpack";
  const int64_t n = a.value.numel();
  check_vector(kOp, "value", a.value, n);
  check_vector(kOp, "mask", a.mask, n);
  check_packed(kOp, a.packed, n);
}

}  // namespace shale::kernels
