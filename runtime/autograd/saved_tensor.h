#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// How to compute a tensor again, bit for bit, from tensors that are saved anyway.
struct Recipe {
  std::function<Tensor()> make;
  uint64_t version = 0;  // of the tensor that it describes
};

// A tensor that an op keeps for its backward. It goes through the innermost SavedTensorHooks of its
// context, if any. A leaf is kept as it is, so that its storage may come and go between forward and
// backward (sharding); anything else is kept without its history. Packed or not, a later change in
// place is an error.
//
// A tensor with a recipe is not kept at all: get() computes it again.
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
  std::shared_ptr<const uint64_t> counter_;  // of versions: outlives the tensor when it was packed
  uint64_t version_ = 0;
  std::shared_ptr<const SavedTensorHooks> hooks_;
  std::shared_ptr<void> packed_;
  std::shared_ptr<const Recipe> recipe_;
};

// Ops whose result costs little to compute again say how, when asked: see SelectiveRecompute. What
// `make` needs it holds as SavedTensors.
bool wants_recipes(Context& context);
void set_recipe(Tensor& y, std::function<Tensor()> make);
// Whether x, saved as it is now, would be computed again.
bool has_recipe(const Tensor& x);

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
