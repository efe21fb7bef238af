#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// A function that recomputes a tensor, bit for bit, from tensors that are saved anyway.
struct Recipe {
  std::function<Tensor()> make;
  uint64_t version = 0;  // version counter of the tensor when the recipe was set
};

// A tensor that an op keeps for its backward. It passes through the innermost SavedTensorHooks of
// its context, if any. A leaf is kept as the same tensor, so that FSDP can free its storage after
// forward and restore it before backward. Other tensors are kept without their history. Changing
// the tensor in place after it was saved is an error, with or without hooks.
//
// If the tensor has a recipe, its values are not kept; get() recomputes them.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const char* op, const Tensor& x);

  // Throws AutogradError, naming the op, if the tensor was changed in place since it was saved.
  Tensor get() const;
  bool defined() const { return counter_ != nullptr; }

 private:
  const char* op_ = "";
  Tensor tensor_;
  std::shared_ptr<const uint64_t> counter_;  // version counter of the tensor; may outlive it
  uint64_t version_ = 0;
  std::shared_ptr<const SavedTensorHooks> hooks_;
  std::shared_ptr<void> packed_;
  std::shared_ptr<const Recipe> recipe_;
};

// An op whose result is cheap to recompute calls set_recipe() if wants_recipes() returns true (see
// SelectiveRecompute). The function `make` must hold the tensors that it needs as SavedTensors.
bool wants_recipes(Context& context);
void set_recipe(Tensor& y, std::function<Tensor()> make);
// True if saving x now would keep its recipe instead of its values.
bool has_recipe(const Tensor& x);

// Scope in which tensors saved in the context pass through these hooks.
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
