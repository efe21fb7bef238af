#pragma once

#include <functional>
#include <string_view>

#include "shale/c.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::c {

// Memory of the program on the runtime's device, as a strided view.
struct ForeignView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;
  bool read_only = false;
};

// Makes a tensor of external memory. `release` is called at the end of the call that removes the
// memory's last user; it is not called if this function throws. Throws ShapeError for an invalid
// view.
Tensor tensor_of_memory(const ForeignView& view, std::function<void()> release);
// Imports DLPack's versioned struct or, if `legacy`, its older one.
Tensor tensor_of_dlpack(void* managed, bool legacy);
// Returns true for tensors of read-only external memory.
bool is_read_only(const Tensor& x);

void check_writable(const Tensor& x);  // throws CallError for a tensor of read-only memory

// Return the C++ value of an API constant, or of a shape. Throw CallError for invalid values.
DType dtype_of_code(shale_dtype code);
Shape shape_of(int32_t ndim, const int64_t* sizes, std::string_view argument);

}  // namespace shale::c
