#include "shale/runtime/autograd/saved_tensor.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {

SavedTensor::SavedTensor(const char* op, const Tensor& x) : op_(op) {
  if (!x.defined()) return;
  counter_ = x.impl().version;
  version_ = *counter_;
  const bool is_leaf = x.impl().leaf != nullptr;
  const auto& hooks = x.context().autograd().saved_hooks;
  if (has_recipe(x)) {
    recipe_ = x.impl().recipe;
  } else if (is_leaf || hooks.empty()) {
    tensor_ = is_leaf ? x : x.detach();
  } else {
    hooks_ = hooks.back();
    packed_ = hooks_->pack(x.detach());
  }
}

Tensor SavedTensor::get() const {
  if (counter_ != nullptr && *counter_ != version_) {
    throw AutogradError(cat(op_, ": ", argument_text("a tensor", tensor_),
                            " that backward needs was changed in place: expected "
                            "version ",
                            version_, ", at which it was saved, found ", *counter_));
  }
  if (recipe_ != nullptr) return recipe_->make();
  return packed_ != nullptr ? hooks_->unpack(packed_) : tensor_;
}

bool wants_recipes(Context& context) {
  return context.autograd().selective;
}

void set_recipe(Tensor& y, std::function<Tensor()> make) {
  y.impl().recipe =
      std::make_shared<const Recipe>(Recipe{.make = std::move(make), .version = y.version()});
}

bool has_recipe(const Tensor& x) {
  const auto& recipe = x.impl().recipe;
  return recipe != nullptr && recipe->version == x.version();
}

SavedTensorHooksScope::SavedTensorHooksScope(Context& context, SavedTensorHooks hooks)
    : context_(context) {
  context_.autograd().saved_hooks.push_back(
      std::make_shared<const SavedTensorHooks>(std::move(hooks)));
}

SavedTensorHooksScope::~SavedTensorHooksScope() {
  context_.autograd().saved_hooks.pop_back();
}

}  // namespace shale
