#pragma once

#include <memory>

#include "runtime/autograd/state.h"
#include "runtime/tensor/tensor.h"

namespace shale {

// A tensor that an op keeps for its backward. It goes through the innermost SavedTensorHooks of its
// context, if any. A leaf is kept as it is, so that its storage may come and go between forward and
// backward (sharding); anything else is kept without its history. Packed or not, a later change in
// place is an error.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const char* op, const Tensor& x);

  // Throws AutogradError, naming the op, if the tensor was changed in place since it was saved.
  Tensor get() const;
  bool defined() const { return tensor_.defined() || packed_ != nullptr; }

 private:
  const char* op_ = "";
  Tensor tensor_;
  std::shared_ptr<const uint64_t> counter_;  // of versions: outlives the tensor when it was packed
  uint64_t version_ = 0;
  std::shared_ptr<const SavedTensorHooks> hooks_;
  std::shared_ptr<void> packed_;
};

// While it lives, tensors saved in the context go through these hooks.
class SavedTensorHooksScope {
 public:
  SavedTensorHooksScope(Context& context, SavedTensorHooks hooks);
  ~SavedTensorHooksScope();
  SavedTensorHooksScope(const SavedTensorHooksScope&) = delete;
  SavedTensorHooksScope& operator=(const SavedTensorHooksScope&) = delete;

 private:
  Context& context_;
};

}  // namespace shale
