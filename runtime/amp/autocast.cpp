#include "shale/runtime/amp/autocast.h"

#include "shale/base/error.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::amp {

Autocast::Autocast(Context& context, DType dtype)
    : context_(context), before_(context.autograd().autocast) {
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    throw ConfigError(cat("autocast: the dtype is ", dtype_name(dtype),
                          ", expected bf16 or fp16, or fp32 to switch it off"));
  }
  context_.autograd().autocast = dtype;
}

Autocast::~Autocast() {
  context_.autograd().autocast = before_;
}

}  // namespace shale::amp
