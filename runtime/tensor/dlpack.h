#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

// The structs of DLPack 1 (dmlc.github.io/dlpack), which other libraries declare in dlpack.h.
struct DLManagedTensorVersioned;
struct DLManagedTensor;  // the legacy struct

namespace shale {

// Details of an exchange with DLPack.
struct DlpackOptions {
  // Runs the release of memory, which the other library may begin on any thread; default: at once.
  std::function<void(std::function<void()>)> run_release = {};
  std::shared_ptr<void> owner = {};  // export: destroyed after the tensor
  bool read_only = false;            // export: the reader must not write
};

// Exports the memory of a tensor without a copy. The reader calls the struct's deleter. Waits for
// the compute stream. Throws ShapeError on a device that DLPack does not have, and for read-only
// memory in the legacy struct.
DLManagedTensorVersioned* to_dlpack(const Tensor& x, const DlpackOptions& options = {});
DLManagedTensor* to_dlpack_legacy(const Tensor& x, const DlpackOptions& options = {});

// Return a tensor over a DLPack struct's memory, without a copy. The deleter is called when nothing
// uses the memory any more, but not if these throw. The other library's work on the memory must
// be done. read_only receives true if the memory must not be written; null: that is an error.
// Throws DTypeError, and ShapeError for memory of another device.
Tensor from_dlpack(Context& context, DLManagedTensorVersioned* managed,
                   const DlpackOptions& options = {}, bool* read_only = nullptr);
Tensor from_dlpack(Context& context, DLManagedTensor* managed, const DlpackOptions& options = {});

}  // namespace shale
