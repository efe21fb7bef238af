#include "runtime/autograd/saved_tensor.h"

#include "runtime/base/error.h"
#include "runtime/tensor/tensor_impl.h"

namespace shale {

SavedTensor::SavedTensor(const char* op, const Tensor& x) : op_(op) {
  if (!x.defined()) return;
  const bool is_leaf = x.impl().leaf != nullptr;
  const auto& hooks = x.context().autograd().saved_hooks;
  if (is_leaf || hooks.empty()) {
    tensor_ = is_leaf ? x : x.detach();
    version_ = x.version();
  } else {
    hooks_ = hooks.back();
    packed_ = hooks_->pack(x.detach());
  }
}

Tensor SavedTensor::get() const {
  if (packed_ != nullptr) return hooks_->unpack(packed_);
  if (tensor_.defined() && tensor_.version() != version_) {
    throw AutogradError(cat(op_, ": a tensor ", tensor_, " that backward needs was changed in place: "
                            "it was saved at version ", version_, ", it is at version ",
                            tensor_.version()));
  }
  return tensor_;
}

SavedTensorHooksScope::SavedTensorHooksScope(Context& context, SavedTensorHooks hooks)
    : context_(context) {
  context_.autograd().saved_hooks.push_back(
      std::make_shared<const SavedTensorHooks>(std::move(hooks)));
}

SavedTensorHooksScope::~SavedTensorHooksScope() { context_.autograd().saved_hooks.pop_back(); }

}  // namespace shale
