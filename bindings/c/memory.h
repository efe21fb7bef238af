#pragma once

#include <functional>
#include <string_view>

#include "shale/c.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::c {

// External memory on the runtime's device.
struct ForeignView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;
  bool read_only = false;
};

// Makes a tensor of that memory. `release` is called after the call in which its last user
// disappears, but not if this throws. Throws CallError for invalid views.
Tensor tensor_of_memory(const ForeignView& view, std::function<void()> release);
// Returns true for tensors of read-only external memory.
bool is_read_only(const Tensor& x);

// Throw CallError for invalid values.
DType dtype_of_code(shale_dtype code);
Shape shape_of(int32_t ndim, const int64_t* sizes, std::string_view argument);

}  // namespace shale::c
