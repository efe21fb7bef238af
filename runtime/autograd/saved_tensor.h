#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// How to recompute a tensor, bit for bit, from tensors that are saved anyway.
struct Recipe {
  std::function<Tensor()> make;
  uint64_t version = 0;  // version of the tensor to recompute
};

// A tensor that an op keeps for its backward. It passes through the innermost SavedTensorHooks of
// its context, if any. A leaf is kept itself, so that its storage may be freed and restored between
// forward and backward (sharding); other tensors are kept without their history. A later change in
// place is an error, with or without hooks.
//
// A tensor with a recipe is not kept; get() recomputes it.
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
  std::shared_ptr<const uint64_t> counter_;  // version counter; may outlive the tensor
  uint64_t version_ = 0;
  std::shared_ptr<const SavedTensorHooks> hooks_;
  std::shared_ptr<void> packed_;
  std::shared_ptr<const Recipe> recipe_;
};

// Ops whose result is cheap to recompute call set_recipe() if wants_recipes() (see
// SelectiveRecompute). `make` must hold the tensors it needs as SavedTensors.
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
