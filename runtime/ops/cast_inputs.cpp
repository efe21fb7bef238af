#include "shale/runtime/ops/cast_inputs.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::amp {
namespace {

// Returns the context's autocast dtype; f32 without autocast.
DType region(std::initializer_list<Tensor> x) {
  const auto* first = std::find_if(x.begin(), x.end(), [](const Tensor& t) { return t.defined(); });
  return first == x.end() ? DType::kF32 : first->context().autograd().autocast;
}

bool any_is_not(DType dtype, std::initializer_list<Tensor> x) {
  return std::any_of(x.begin(), x.end(), [dtype](const Tensor& t) {
    return t.defined() && is_float(t.dtype()) && t.dtype() != dtype;
  });
}

// Returns the cast copy of a leaf that an earlier use made. Returns an undefined tensor if nothing
// holds the copy any more, or if the leaf has changed.
Tensor find_copy(const Tensor& leaf, DType dtype) {
  const LowCopy& copy = leaf_state(leaf).low_copy;
  auto storage = copy.storage.lock();
  if (storage == nullptr || copy.version != leaf.version() || copy.dtype != dtype) return {};
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &leaf.context();
  impl->storage = std::move(storage);
  impl->shape = leaf.shape();
  impl->strides = contiguous_strides(leaf.shape());
  impl->dtype = dtype;
  impl->version = copy.counter;
  return Tensor(std::move(impl));
}

// Casts a weight. All uses share one copy, but each records its own cast, because their backwards
// may run at different times.
Tensor cast_weight(const Tensor& weight, DType dtype) {
  Tensor y = find_copy(weight, dtype);
  if (y.defined()) {
    record("cast", {weight}, {&y},
           [from = weight.dtype()](BackwardArgs& args) { return Grads{cast(args.dy(), from)}; });
    return y;
  }
  y = cast(weight, dtype);
  leaf_state(weight).low_copy = {.storage = y.storage(),
                                 .counter = y.impl().version,
                                 .version = weight.version(),
                                 .dtype = dtype};
  return y;
}

}  // namespace

bool wants_low(std::initializer_list<Tensor> x) {
  const DType dtype = region(x);
  return dtype != DType::kF32 && any_is_not(dtype, x);
}

bool wants_f32(std::initializer_list<Tensor> x) {
  return region(x) != DType::kF32 && any_is_not(DType::kF32, x);
}

Tensor to_low(const Tensor& x) {
  if (!x.defined()) return x;
  const DType dtype = x.context().autograd().autocast;
  const bool is_weight = x.impl().leaf != nullptr && x.contiguous() && x.dtype() != dtype;
  return is_weight ? cast_weight(x, dtype) : cast(contiguous(x), dtype);
}

Tensor to_f32(const Tensor& x) {
  return x.defined() ? cast(contiguous(x), DType::kF32) : x;
}

DType result_dtype(const Tensor& x) {
  return x.dtype() == DType::kU8 ? DType::kF32 : x.dtype();
}

DType result_dtype(const Tensor& a, const Tensor& b) {
  if (a.dtype() == DType::kU8) return result_dtype(b);
  if (b.dtype() == DType::kU8) return a.dtype();
  if (region({a}) == DType::kF32 || a.dtype() == b.dtype()) return a.dtype();
  // for two different dtypes among bf16, f16 and f32, f32 is the only common one
  return DType::kF32;
}

Tensor add_residual(const Tensor& y, const Tensor& residual) {
  return residual.defined() ? add(y, residual) : y;
}

}  // namespace shale::amp
