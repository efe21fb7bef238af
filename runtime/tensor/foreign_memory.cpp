#include "shale/runtime/tensor/foreign_memory.h"

#include <limits>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

// Returns the bytes from the first element to the end of the last element.
int64_t extent_of(const Shape& shape, const Shape& strides, DType dtype) {
  const auto fail = [&](const char* expected) {
    throw ShapeError(
        cat("from_blob: shape ", shape, " has strides ", strides, ", expected ", expected));
  };
  if (strides.ndim() != shape.ndim()) fail("one stride for each size");
  int64_t last = 0;
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] < 0) fail("sizes of 0 or more");
    if (strides[i] < 0) fail("strides of 0 or more");
    if (shape[i] == 0) return 0;
  }
  for (int i = 0; i < shape.ndim(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) ||
        __builtin_add_overflow(last, step, &last) ||
        last > std::numeric_limits<int64_t>::max() / dtype_size(dtype) - 1) {
      fail("memory within the address space");
    }
  }
  return (last + 1) * dtype_size(dtype);
}

// Makes the stream `waiter` wait for the work that is now queued on `stream`.
void wait_for_stream(DeviceBackend& backend, void* waiter, void* stream) {
  void* const event = backend.record_event(stream);
  backend.wait_event(waiter, event);
  backend.destroy_event(event);
}

}  // namespace

Tensor from_blob(Context& context, void* data, const Shape& shape, DType dtype,
                 const BlobOptions& options) {
  const Shape strides = options.strides.value_or(contiguous_strides(shape));
  const int64_t bytes = extent_of(shape, strides, dtype);
  if (bytes > 0 && data == nullptr) {
    throw ShapeError(cat("from_blob: data is NULL, expected ", bytes, " bytes"));
  }
  if (reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(dtype_size(dtype)) != 0) {
    throw ShapeError(
        cat("from_blob: data is not aligned to elements of ", dtype_size(dtype), " bytes"));
  }
  if (bytes > 0 && !context.backend().reaches(data)) {
    throw ShapeError(cat("from_blob: data is not in the memory of ", context.device(),
                         "; from_host() copies from host memory, to() between devices"));
  }
  if (options.stream.has_value()) {
    wait_for_stream(context.backend(), context.exec().stream, *options.stream);
  }
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &context;
  impl->storage = adopt_memory(
      context, data, bytes, options.release ? options.release : [] {});
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

void hand_over(const Tensor& x, void* stream) {
  check_defined("hand_over", "x", x);
  wait_for_stream(x.context().backend(), stream, x.exec().stream);
  x.storage()->record_stream(stream);
}

}  // namespace shale
