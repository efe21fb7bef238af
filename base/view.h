#pragma once

#include <cstdint>

#include "shale/base/dtype.h"
#include "shale/base/error.h"
#include "shale/base/shape.h"

namespace shale {

// A kernel's view of a tensor: pointer, shape and strides (in elements). It owns nothing and must
// not outlive the call it was made for. A default-constructed view stands for an omitted argument.
struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;

  bool defined() const { return data != nullptr || shape.ndim() > 0; }
  int ndim() const { return shape.ndim(); }
  int64_t size(int i) const { return shape.at(i); }
  int64_t stride(int i) const { return strides.at(i); }
  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return numel() * dtype_size(dtype); }

  // The view as a matrix: rows are all dimensions but the last.
  int64_t cols() const { return shape.at(-1); }
  int64_t rows() const { return cols() == 0 ? 0 : numel() / cols(); }

  bool contiguous() const;  // dense and row-major; the strides of dimensions of size 1 are ignored

  // Pointer to the elements. Throws DTypeError if T is not the view's dtype.
  template <typename T>
  T* as() const {
    if (dtype != dtype_of<T>) throw_dtype(dtype_of<T>);
    return static_cast<T*>(data);
  }

  // Elements [offset, offset + count) of a contiguous view, as a vector.
  View flat(int64_t offset, int64_t count) const;

 private:
  [[noreturn]] void throw_dtype(DType wanted) const;
};

// Makes a dense row-major view.
View make_view(void* data, DType dtype, const Shape& shape);
template <typename T>
View make_view(T* data, const Shape& shape) {
  return make_view(data, dtype_of<T>, shape);
}

std::string to_string(const View& view);  // "bf16[4,768]"

}  // namespace shale
