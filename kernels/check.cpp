#include "shale/kernels/check.h"

#include <algorithm>

namespace shale::kernels {

void check_defined(const char* op, const char* arg, const View& view) {
  if (!view.defined()) throw ShapeError(cat(op, ": ", arg, " is missing"));
}

void check_shape(const char* op, const char* arg, const View& view, const Shape& want) {
  check_defined(op, arg, view);
  if (view.shape == want) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, ", expected shape ", want));
}

void check_contiguous(const char* op, const char* arg, const View& view) {
  check_defined(op, arg, view);
  if (view.contiguous()) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, " with strides ", view.strides,
                       "; expected a contiguous tensor"));
}

void check_dtype(const char* op, const char* arg, const View& view, DType want) {
  check_dtype(op, arg, view, {want});
}

void check_dtype(const char* op, const char* arg, const View& view,
                 std::initializer_list<DType> any_of) {
  check_defined(op, arg, view);
  if (std::find(any_of.begin(), any_of.end(), view.dtype) != any_of.end()) return;
  std::string wanted;
  for (const DType dtype : any_of) wanted += cat(wanted.empty() ? "" : " or ", dtype_name(dtype));
  throw DTypeError(cat(op, ": ", arg, " is ", view, ", expected ", wanted));
}

void check_dense(const char* op, const char* arg, const View& view, const Shape& want,
                 DType dtype) {
  check_shape(op, arg, view, want);
  check_dtype(op, arg, view, dtype);
  check_contiguous(op, arg, view);
}

void check_gradient(const char* op, const char* arg, const View& view, int64_t cols) {
  check_dtype(op, arg, view, kGradientDTypes);
  check_dense(op, arg, view, {cols}, view.dtype);
}

void check_optim_span(const char* op, const View& master, const View& grad, const View& param) {
  check_dtype(op, "master", master, DType::kF32);
  check_contiguous(op, "master", master);
  check_shape(op, "grad", grad, master.shape);
  check_dtype(op, "grad", grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", grad);
  if (!param.defined()) return;
  check_shape(op, "param", param, master.shape);
  check_dtype(op, "param", param, {DType::kBF16, DType::kF16});
  check_contiguous(op, "param", param);
}

StepState& step_of(const char* op, const Exec& exec) {
  if (exec.step == nullptr) throw InternalError(cat(op, ": exec.step is null"));
  return *exec.step;
}

void* scratch_bytes(const char* op, const Exec& exec, int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (exec.workspace == nullptr) throw InternalError(cat(op, ": exec.workspace is null"));
  return exec.workspace->reserve(static_cast<size_t>(bytes));
}

}  // namespace shale::kernels
