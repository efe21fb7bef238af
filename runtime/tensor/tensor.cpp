#include "shale/runtime/tensor/tensor.h"

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/row_pieces.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

const TensorImpl& checked(const std::shared_ptr<TensorImpl>& impl) {
  if (impl == nullptr || impl->is_undefined)
    throw InternalError("tensor: an undefined tensor was used");
  return *impl;
}

// Returns the tensor's state. If the tensor has no values but a make_values function, creates the
// values first.
const TensorImpl& with_values(const std::shared_ptr<TensorImpl>& impl) {
  const TensorImpl& of = checked(impl);
  if (of.storage == nullptr && of.leaf != nullptr && of.leaf->make_values) of.leaf->make_values();
  return of;
}

// Returns a parameter's full name; an empty string for other tensors.
std::string_view name_of(const Tensor& x) {
  const LeafState* leaf = x.defined() ? x.impl().leaf.get() : nullptr;
  return leaf != nullptr ? std::string_view(leaf->name) : std::string_view();
}

}  // namespace

TensorImpl::~TensorImpl() = default;

Tensor no_residual(RowPieces& rows) {
  auto impl = std::make_shared<TensorImpl>();
  impl->is_undefined = true;
  impl->rows_of_sum = &rows;
  return Tensor(std::move(impl));
}

RowPieces* rows_of_sum(const Tensor& residual) {
  return residual.impl_ptr() != nullptr ? residual.impl().rows_of_sum : nullptr;
}

bool Tensor::defined() const {
  return impl_ != nullptr && !impl_->is_undefined;
}
bool Tensor::contiguous() const {
  return View{.data = nullptr, .dtype = dtype(), .shape = shape(), .strides = strides()}
      .contiguous();
}

const Shape& Tensor::shape() const {
  return checked(impl_).shape;
}
const Shape& Tensor::strides() const {
  return checked(impl_).strides;
}
DType Tensor::dtype() const {
  return checked(impl_).dtype;
}
Context& Tensor::context() const {
  if (checked(impl_).context == nullptr) {
    const std::string_view name = name_of(*this);
    throw InternalError(cat("tensor: ", name.empty() ? "a parameter" : name, " ", shape(),
                            " has no memory yet: call materialize(), fully_shard() or DataParallel "
                            "for a module that contains it, or for the root"));
  }
  return impl_->storage != nullptr ? impl_->storage->context() : *impl_->context;
}
const std::shared_ptr<Storage>& Tensor::storage() const {
  return with_values(impl_).storage;
}

View Tensor::view() const {
  const TensorImpl& impl = with_values(impl_);
  if (impl.storage == nullptr) {
    throw InternalError(
        cat("tensor: ", impl.leaf ? impl.leaf->name : "a tensor", " ", dtype_name(impl.dtype),
            impl.shape,
            " has no memory: materialise or shard its module first, and use it only "
            "inside the forward (Module::run) of that module; inside fused() only "
            "elementwise ops can use results of ops"));
  }
  if (RowPieces* const rows = impl.storage->rows()) rows->wait();
  return {
      .data = static_cast<std::byte*>(impl.storage->data()) + impl.offset * dtype_size(impl.dtype),
      .dtype = impl.dtype,
      .shape = impl.shape,
      .strides = impl.strides};
}

Tensor Tensor::alias(const Shape& shape, const Shape& strides, int64_t offset) const {
  const TensorImpl& from = with_values(impl_);
  auto impl = std::make_shared<TensorImpl>();
  impl->context = from.context;
  impl->storage = from.storage;
  impl->offset = from.offset + offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = from.dtype;
  impl->version = from.version;
  impl->sharing = from.sharing;
  return Tensor(std::move(impl));
}

Tensor Tensor::recorded_alias(const Shape& shape, const Shape& strides, int64_t offset) const {
  *impl_->sharing = Sharing::kHidden;
  return alias(shape, strides, offset);
}

Tensor Tensor::detach() const {
  return alias(shape(), strides());
}

bool Tensor::requires_grad() const {
  if (impl_ == nullptr) return false;
  if (impl_->base != nullptr && impl_->edition != impl_->base->edition) update_view(*this);
  return impl_->requires_grad;
}

Tensor& Tensor::set_requires_grad(bool value) {
  if (checked(impl_).grad_fn != nullptr) {
    throw AutogradError(
        cat("set_requires_grad: the tensor ", *this, " is the result of an op, expected a leaf"));
  }
  if (const std::string_view parameter = name_of(*this); !parameter.empty()) {
    throw AutogradError(cat("set_requires_grad: ", parameter,
                            " is a parameter: set Parameter::trainable instead, before the "
                            "model's memory is allocated; to freeze it for some steps only, give "
                            "it an optimizer of its own (select_parameters()) and do not step that "
                            "optimizer in these steps"));
  }
  impl_->requires_grad = value;
  if (value) leaf_state(*this);
  return *this;
}

Tensor Tensor::grad() const {
  const LeafState* leaf = checked(impl_).leaf.get();
  return leaf != nullptr && leaf->has_value ? leaf->grad : Tensor();
}

uint64_t Tensor::version() const {
  return *checked(impl_).version;
}
void Tensor::bump_version() const {
  ++*checked(impl_).version;
}

LeafState& leaf_state(const Tensor& leaf) {
  TensorImpl& impl = leaf.impl();
  if (impl.leaf == nullptr) impl.leaf = std::make_unique<LeafState>();
  return *impl.leaf;
}

Tensor empty(Context& context, const Shape& shape, DType dtype, MemoryTag tag,
             std::string_view what) {
  check_dtype_of(context.device(), dtype, what);
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &context;
  impl->storage = context.allocate(shape.numel() * dtype_size(dtype), tag, what);
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor empty_like(const Tensor& x) {
  return empty(x.context(), x.shape(), x.dtype());
}

Tensor full(Context& context, const Shape& shape, DType dtype, double value, MemoryTag tag) {
  Tensor x = empty(context, shape, dtype, tag);
  kernels::fill(context.exec(), {.y = x, .value = value});
  if (OpRecorder* to = recorder_of(x)) to->add("full", {}, {x}, {{"value", value}});
  return x;
}

template <typename T>
Tensor from_host(Context& context, std::span<const T> values, const Shape& shape, MemoryTag tag) {
  if (static_cast<int64_t>(values.size()) != shape.numel()) {
    throw ShapeError(cat("from_host: ", values.size(), " values, expected as many as in ", shape));
  }
  Tensor x = empty(context, shape, dtype_of<T>, tag);
  context.copy(x.data(), values.data(), x.bytes());
  if (OpRecorder* to = recorder_of(x)) to->add_constant(x);
  return x;
}

template <typename T>
std::vector<T> to_host(const Tensor& x) {
  check_dtype("to_host", "x", x, dtype_of<T>);
  check_contiguous("to_host", "x", x);
  if (OpRecorder* to = recorder_of(x)) to->read(x);
  std::vector<T> values(static_cast<size_t>(x.numel()));
  x.context().copy(values.data(), x.data(), x.bytes());
  x.context().synchronize();
  return values;
}

template Tensor from_host<float>(Context&, std::span<const float>, const Shape&, MemoryTag);
template Tensor from_host<bf16>(Context&, std::span<const bf16>, const Shape&, MemoryTag);
template Tensor from_host<f16>(Context&, std::span<const f16>, const Shape&, MemoryTag);
template Tensor from_host<double>(Context&, std::span<const double>, const Shape&, MemoryTag);
template Tensor from_host<int32_t>(Context&, std::span<const int32_t>, const Shape&, MemoryTag);
template Tensor from_host<int64_t>(Context&, std::span<const int64_t>, const Shape&, MemoryTag);
template Tensor from_host<uint8_t>(Context&, std::span<const uint8_t>, const Shape&, MemoryTag);
template Tensor from_host<uint16_t>(Context&, std::span<const uint16_t>, const Shape&, MemoryTag);
template Tensor from_host<uint32_t>(Context&, std::span<const uint32_t>, const Shape&, MemoryTag);
template std::vector<float> to_host<float>(const Tensor&);
template std::vector<bf16> to_host<bf16>(const Tensor&);
template std::vector<f16> to_host<f16>(const Tensor&);
template std::vector<double> to_host<double>(const Tensor&);
template std::vector<int32_t> to_host<int32_t>(const Tensor&);
template std::vector<int64_t> to_host<int64_t>(const Tensor&);
template std::vector<uint8_t> to_host<uint8_t>(const Tensor&);
template std::vector<uint16_t> to_host<uint16_t>(const Tensor&);
template std::vector<uint32_t> to_host<uint32_t>(const Tensor&);

std::string to_string(const Tensor& x) {
  return x.defined() ? cat(dtype_name(x.dtype()), x.shape()) : "undefined";
}

std::string argument_text(std::string_view name, const Tensor& x) {
  const std::string_view parameter = name_of(x);
  return parameter.empty() ? std::string(name) : cat(name, " (", parameter, ")");
}

void check_defined(std::string_view op, std::string_view name, const Tensor& x) {
  if (!x.defined()) throw ShapeError(cat(op, ": ", name, " is undefined, expected a tensor"));
}

void check_shape(std::string_view op, std::string_view name, const Tensor& x, const Shape& want) {
  check_defined(op, name, x);
  if (!(x.shape() == want)) {
    throw ShapeError(cat(op, ": ", argument_text(name, x), " is ", x.shape(), ", expected ", want));
  }
}

void check_dtype(std::string_view op, std::string_view name, const Tensor& x, DType want) {
  check_defined(op, name, x);
  if (x.dtype() != want) {
    throw DTypeError(cat(op, ": ", argument_text(name, x), " is ", dtype_name(x.dtype()),
                         ", expected ", dtype_name(want)));
  }
}

void check_contiguous(std::string_view op, std::string_view name, const Tensor& x) {
  check_defined(op, name, x);
  if (!x.contiguous()) {
    throw ShapeError(cat(op, ": ", argument_text(name, x), " ", x, " has strides ", x.strides(),
                         ", expected a contiguous tensor"));
  }
}

void check_same_device(std::string_view op, const Tensor& first, std::span<const Tensor> others) {
  const Device& device = first.context().device();
  for (const Tensor& x : others) {
    if (!x.defined() || x.impl().context == nullptr || x.context().device() == device) continue;
    throw InternalError(cat(op, ": ", argument_text("a tensor", x), " ", x, " is on ",
                            x.context().device(), ", another, ", first, ", on ", device,
                            "; expected all on one device: to() moves them"));
  }
}

}  // namespace shale
