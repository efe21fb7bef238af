#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "shale/runtime/tensor/storage.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Makes memory that the caller owns, on the context's device, the storage of tensors. `release` is
// called once, when nothing uses the memory any more and the work queued on the compute stream is
// done; it must not throw. Memory statistics do not include this memory.
std::shared_ptr<Storage> adopt_memory(Context& context, void* memory, int64_t bytes,
                                      std::function<void()> release);

// Options of from_blob().
struct BlobOptions {
  // strides in elements, 0 or more; default: dense and row-major
  std::optional<Shape> strides = {};
  // A stream (cudaStream_t) of the caller on which the memory is written. The compute stream waits
  // for the work that is now queued on it. Null is CUDA's default stream. Without a value the
  // memory is ready.
  std::optional<void*> stream = {};
  // Called once, when nothing uses the memory any more; it must not throw. If empty, the memory
  // must outlive the context.
  std::function<void()> release = {};
};

// Returns a tensor over memory that the caller owns, on the context's device, without a copy.
// A change of the memory shows in the tensor, and vice versa. Throws ShapeError if the memory is
// null, not aligned to the element's size, or memory that the device cannot use; then `release` is
// not called.
Tensor from_blob(Context& context, void* data, const Shape& shape, DType dtype,
                 const BlobOptions& options = {});

// Makes later work of a stream of the caller (cudaStream_t) wait until x is computed; the host does
// not wait. The memory of x is not reused before the work that is now queued on that stream is
// done. So call this again after queueing work that reads x.
void hand_over(const Tensor& x, void* stream);

}  // namespace shale
