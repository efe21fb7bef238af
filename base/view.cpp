#include "shale/base/view.h"

namespace shale {

bool View::contiguous() const {
  int64_t expected = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

View View::flat(int64_t offset, int64_t count) const {
  if (!contiguous() || offset < 0 || count < 0 || offset + count > numel()) {
    throw ShapeError(cat("flat: expected a range within a contiguous view, found [", offset, ", ",
                         offset + count, ") of ", *this, contiguous() ? "" : ", not contiguous"));
  }
  return make_view(static_cast<std::byte*>(data) + offset * dtype_size(dtype), dtype, {count});
}

void View::throw_dtype(DType wanted) const {
  throw DTypeError(cat("kernel argument: expected ", dtype_name(wanted), ", found ", *this));
}

View make_view(void* data, DType dtype, const Shape& shape) {
  return {.data = data, .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape)};
}

std::string to_string(const View& view) {
  return cat(dtype_name(view.dtype), view.shape);
}

}  // namespace shale
