#pragma once

#include <initializer_list>

#include "shale/base/exec.h"
#include "shale/base/view.h"

namespace shale::kernels {

// Argument checks that the kernels of all devices share. They throw ShapeError or DTypeError with
// the op, the argument, what was expected and what was found.
void check_defined(const char* op, const char* arg, const View& view);
void check_shape(const char* op, const char* arg, const View& view, const Shape& want);
void check_contiguous(const char* op, const char* arg, const View& view);
void check_dtype(const char* op, const char* arg, const View& view, DType want);
void check_dtype(const char* op, const char* arg, const View& view,
                 std::initializer_list<DType> any_of);
// Checks for a contiguous view of this shape and dtype.
void check_dense(const char* op, const char* arg, const View& view, const Shape& want, DType dtype);

inline constexpr std::initializer_list<DType> kComputeDTypes = {DType::kF32, DType::kBF16,
                                                                // dtypes of inputs and results
                                                                DType::kF16};
// Dtypes of accumulated gradients: computed in f32, rounded once when they are stored.
inline constexpr std::initializer_list<DType> kGradientDTypes = {DType::kF32, DType::kBF16};

// Checks for a dense gradient of shape [cols].
void check_gradient(const char* op, const char* arg, const View& view, int64_t cols);
// Checks the range of a parameter that an optimizer updates: an f32 master, a gradient of the same
// shape, and optionally a 16-bit parameter.
void check_optim_span(const char* op, const View& master, const View& grad, const View& param);

// Returns the StepState of `exec`, which the runtime must have set.
StepState& step_of(const char* op, const Exec& exec);
// Returns scratch memory from the workspace, or null if the size is 0. Not thread-safe.
void* scratch_bytes(const char* op, const Exec& exec, int64_t bytes);
template <typename T>
T* scratch(const char* op, const Exec& exec, int64_t count) {
  return static_cast<T*>(scratch_bytes(op, exec, count * static_cast<int64_t>(sizeof(T))));
}

// Calls fn.template operator()<T>() for the type T of a compute dtype: f32, bf16 or f16.
template <typename Fn>
void dispatch_float(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32: return fn.template operator()<float>();
    case DType::kBF16: return fn.template operator()<bf16>();
    case DType::kF16: return fn.template operator()<f16>();
    default: throw DTypeError(cat("a kernel takes fp32, bf16 or fp16, found ", dtype_name(dtype)));
  }
}

// Calls fn.template operator()<T>() for the type T of a gradient dtype: f32 or bf16.
template <typename Fn>
void dispatch_gradient(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32: return fn.template operator()<float>();
    case DType::kBF16: return fn.template operator()<bf16>();
    default: throw DTypeError(cat("a gradient is fp32 or bf16, found ", dtype_name(dtype)));
  }
}

}  // namespace shale::kernels
