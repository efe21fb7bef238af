#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/storage.h"

namespace shale {

struct TensorImpl;

// A handle to a strided array on a device; copies of the handle refer to the same tensor. A
// default-constructed tensor is undefined and means "none".
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const;
  const Shape& shape() const;
  const Shape& strides() const;  // strides in elements
  DType dtype() const;
  int ndim() const { return shape().ndim(); }
  int64_t size(int dim) const { return shape().at(dim); }  // negative dims count from the end
  int64_t numel() const { return shape().numel(); }
  int64_t bytes() const { return numel() * dtype_size(dtype()); }
  bool contiguous() const;
  Context& context() const;
  const Exec& exec() const { return context().exec(); }
  const std::shared_ptr<Storage>& storage() const;
  void* data() const { return view().data; }

  // Returns the view that kernels use. Throws InternalError if the tensor has no storage (yet).
  View view() const;
  operator View() const { return view(); }

  // Returns a tensor with other shape and strides over the same memory. Autograd does not record
  // alias(); use the ops in ops/shape.h to record it.
  Tensor alias(const Shape& shape, const Shape& strides, int64_t offset = 0) const;
  // returns a tensor with the same memory and version counter but without history
  Tensor detach() const;
  // alias() for the results of ops, which record it. Afterwards neither tensor may be changed in
  // place.
  Tensor recorded_alias(const Shape& shape, const Shape& strides, int64_t offset = 0) const;

  // True if gradients flow to this tensor. Results of ops inherit it from inputs, so it can be set
  // only on leaves. The setter throws AutogradError for the result of an op, and for a parameter
  // (use Parameter::trainable).
  bool requires_grad() const;
  Tensor& set_requires_grad(bool value);
  // Gradient of a leaf after backward; undefined if there is none.
  Tensor grad() const;

  // Number of in-place changes, so that backward can refuse a saved tensor that was changed.
  uint64_t version() const;
  void bump_version() const;

  TensorImpl& impl() const { return *impl_; }
  const std::shared_ptr<TensorImpl>& impl_ptr() const { return impl_; }

 private:
  std::shared_ptr<TensorImpl> impl_;
};

// Returns a tensor with new, uninitialised memory. `what` names the requester in the
// out-of-memory error.
Tensor empty(Context& context, const Shape& shape, DType dtype,
             MemoryTag tag = MemoryTag::kActivation, std::string_view what = "tensor");
// Like empty(), with the shape, dtype and context of x.
Tensor empty_like(const Tensor& x);
// Returns a tensor filled with one value. zeros() fills with 0.
Tensor full(Context& context, const Shape& shape, DType dtype, double value,
            MemoryTag tag = MemoryTag::kActivation);
inline Tensor zeros(Context& context, const Shape& shape, DType dtype,
                    MemoryTag tag = MemoryTag::kActivation) {
  return full(context, shape, dtype, 0, tag);
}

// Copies host values to the device: T is float, bf16, f16, double, int32_t, int64_t, uint8_t,
// uint16_t or uint32_t. Throws ShapeError unless values.size() == shape.numel().
template <typename T>
Tensor from_host(Context& context, std::span<const T> values, const Shape& shape,
                 MemoryTag tag = MemoryTag::kData);
// Copies a contiguous tensor to the host; waits for the compute stream. Throws DTypeError unless T
// is the tensor's dtype, ShapeError if it is not contiguous.
template <typename T>
std::vector<T> to_host(const Tensor& x);

std::string to_string(const Tensor& x);  // returns a text such as "bf16[4,768]" or "undefined"

// Returns the name of an argument for an error message: "weight", or "weight (h.0.fc.weight)" if x
// is a parameter with that full name.
std::string argument_text(std::string_view name, const Tensor& x);

// Argument checks, called first in each op. Errors read "op: name is [3,4], expected [3,5]", where
// name is argument_text().
void check_defined(std::string_view op, std::string_view name, const Tensor& x);
void check_shape(std::string_view op, std::string_view name, const Tensor& x, const Shape& want);
void check_dtype(std::string_view op, std::string_view name, const Tensor& x, DType want);
void check_contiguous(std::string_view op, std::string_view name, const Tensor& x);
// Throws InternalError if a defined tensor is on another device than `first`.
void check_same_device(std::string_view op, const Tensor& first, std::span<const Tensor> others);

}  // namespace shale
