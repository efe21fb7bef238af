#pragma once

#include <functional>
#include <string_view>

#include "shale/c.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::c {

// Memory of somebody else on the runtime's device.
struct ForeignView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;
  bool read_only = false;
};

// That memory as a tensor. `release` is called after the call in which nobody uses it any more; if
// this throws, it is not. Throws CallError for what cannot be.
Tensor tensor_of_memory(const ForeignView& view, std::function<void()> release);
// Whether it is of such memory that is not to be written to.
bool is_read_only(const Tensor& x);

// Throw CallError for what cannot be.
DType dtype_of_code(shale_dtype code);
Shape shape_of(int32_t ndim, const int64_t* sizes, std::string_view argument);

}  // namespace shale::c
