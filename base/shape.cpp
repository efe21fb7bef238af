#include "shale/base/shape.h"

#include <algorithm>

#include "shale/base/error.h"

namespace shale {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  for (const int64_t size : sizes) push_back(size);
}

int64_t Shape::at(int i) const {
  const int index = i < 0 ? i + ndim_ : i;
  if (index < 0 || index >= ndim_) {
    throw ShapeError(cat("dimension ", i, " does not exist in ", *this));
  }
  return (*this)[index];
}

void Shape::push_back(int64_t size) {
  if (ndim_ == kMaxDims) {
    throw ShapeError(cat("shape: expected at most ", kMaxDims, " dimensions, found more"));
  }
  sizes_[static_cast<size_t>(ndim_++)] = size;
}

int64_t Shape::numel() const {
  int64_t count = 1;
  for (const int64_t size : *this) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      throw ShapeError(cat("shape ", *this,
                           " has a negative size, or its number of elements overflows 64 bits"));
    }
  }
  return count;
}

bool operator==(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int i = shape.ndim() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.ndim(); ++i) {
    if (i > 0) text += ",";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace shale
