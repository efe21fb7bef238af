#include "shale/kernels/tree_sum.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
void check_args(const TreeSumArgs& a) {
  if (a.inputs.empty()) throw ShapeError("tree_sum: no inputs, expected one or more");
  if (a.inputs.size() == 1 && a.in_dtype == a.out_dtype) return;
  const auto is_narrow = [](DType dtype) { return is_float(dtype) && dtype != DType::kF64; };
  const bool wide =
      a.in_dtype == a.out_dtype &&
      (a.in_dtype == DType::kF64 || a.in_dtype == DType::kI32 || a.in_dtype == DType::kI64);
  if (wide || (is_narrow(a.in_dtype) && is_narrow(a.out_dtype))) return;
  throw DTypeError(
      cat("tree_sum: cannot add ", dtype_name(a.in_dtype), " into ", dtype_name(a.out_dtype)));
}

}  // namespace shale::kernels
