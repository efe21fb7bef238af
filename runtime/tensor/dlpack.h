#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

// The structs of DLPack 1 (dmlc.github.io/dlpack), which other libraries declare in dlpack.h.
struct DLManagedTensorVersioned;
struct DLManagedTensor;  // the legacy struct

namespace shale {

// Options of to_dlpack() and from_dlpack().
struct DlpackOptions {
  // Calls the function that releases memory. The other library may request the release on any
  // thread. Default: calls it at once, on that thread.
  std::function<void(std::function<void()>)> run_release = {};
  std::shared_ptr<void> owner = {};  // for exports: object to destroy after the tensor
  bool read_only = false;            // for exports: true if the reader must not write
};

// Exports the memory of a tensor without a copy. The reader must call the struct's deleter. Waits
// for the compute stream. Throws ShapeError if DLPack has no such device, and for read-only memory
// in the legacy struct.
DLManagedTensorVersioned* to_dlpack(const Tensor& x, const DlpackOptions& options = {});
DLManagedTensor* to_dlpack_legacy(const Tensor& x, const DlpackOptions& options = {});

// Return a tensor over a DLPack struct's memory, without a copy. All work of the other library on
// the memory must be done. The struct's deleter is called when nothing uses the memory any more; it
// is not called if these functions throw. read_only: receives true if the memory must not be
// written; if it is null, such memory is an error. Throws DTypeError, and ShapeError for memory of
// another device.
Tensor from_dlpack(Context& context, DLManagedTensorVersioned* managed,
                   const DlpackOptions& options = {}, bool* read_only = nullptr);
Tensor from_dlpack(Context& context, DLManagedTensor* managed, const DlpackOptions& options = {});

}  // namespace shale
