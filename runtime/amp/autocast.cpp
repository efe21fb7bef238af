#include "runtime/amp/autocast.h"

#include <algorithm>

#include "runtime/autograd/state.h"
#include "runtime/base/error.h"
#include "runtime/ops/elementwise.h"
#include "runtime/ops/shape.h"

namespace shale::amp {
namespace {

// The region's dtype; f32 outside of all.
DType region(std::initializer_list<Tensor> x) {
  const auto* first = std::find_if(x.begin(), x.end(), [](const Tensor& t) { return t.defined(); });
  return first == x.end() ? DType::kF32 : first->context().autograd().autocast;
}

bool any_is_not(DType dtype, std::initializer_list<Tensor> x) {
  return std::any_of(x.begin(), x.end(), [dtype](const Tensor& t) {
    return t.defined() && is_float(t.dtype()) && t.dtype() != dtype;
  });
}

}  // namespace

Autocast::Autocast(Context& context, DType dtype)
    : context_(context), before_(context.autograd().autocast) {
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    throw ConfigError(cat("autocast: the dtype is ", dtype_name(dtype),
                          ", want bf16 or fp16, or fp32 to switch it off"));
  }
  context_.autograd().autocast = dtype;
}

Autocast::~Autocast() {
  context_.autograd().autocast = before_;
}

bool wants_low(std::initializer_list<Tensor> x) {
  const DType dtype = region(x);
  return dtype != DType::kF32 && any_is_not(dtype, x);
}

bool wants_f32(std::initializer_list<Tensor> x) {
  return region(x) != DType::kF32 && any_is_not(DType::kF32, x);
}

Tensor to_low(const Tensor& x) {
  return x.defined() ? cast(contiguous(x), x.context().autograd().autocast) : x;
}

Tensor to_f32(const Tensor& x) {
  return x.defined() ? cast(contiguous(x), DType::kF32) : x;
}

DType result_dtype(const Tensor& a, const Tensor& b) {
  if (region({a}) == DType::kF32 || a.dtype() == b.dtype()) return a.dtype();
  return DType::kF32;  // of bf16, f16 and f32 no two have another common dtype
}

Tensor add_residual(const Tensor& y, const Tensor& residual) {
  return residual.defined() ? add(y, residual) : y;
}

}  // namespace shale::amp
