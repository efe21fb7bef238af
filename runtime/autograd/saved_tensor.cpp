#include "runtime/autograd/saved_tensor.h"

#include "runtime/base/error.h"
#include "runtime/tensor/tensor_impl.h"

namespace shale {

SavedTensor::SavedTensor(const char* op, const Tensor& x) : op_(op) {
  if (!x.defined()) return;
  counter_ = x.impl().version;
  version_ = *counter_;
  const bool is_leaf = x.impl().leaf != nullptr;
  const auto& hooks = x.context().autograd().saved_hooks;
  if (is_leaf || hooks.empty()) {
    tensor_ = is_leaf ? x : x.detach();
  } else {
    hooks_ = hooks.back();
    packed_ = hooks_->pack(x.detach());
  }
}

Tensor SavedTensor::get() const {
  if (counter_ != nullptr && *counter_ != version_) {
    throw AutogradError(cat(op_,
                            ": a tensor that backward needs was changed in place: it was saved "
                            "at version ",
                            version_, ", it is at version ", *counter_));
  }
  return packed_ != nullptr ? hooks_->unpack(packed_) : tensor_;
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
