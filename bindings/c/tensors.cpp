// Tensors: their memory, properties and copies.
#include <limits>
#include <span>

#include "shale/bindings/c/memory.h"
#include "shale/bindings/c/session.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/dlpack.h"
#include "shale/runtime/tensor/foreign_memory.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::c {

DType dtype_of_code(shale_dtype code) {
  static_assert(int(DType::kF32) == SHALE_F32 && int(DType::kU32) == SHALE_U32);
  if (code < SHALE_F32 || code > SHALE_U32) {
    fail_argument("dtype is ", code, ", expected 0 (SHALE_F32) to 8 (SHALE_U32)");
  }
  return static_cast<DType>(code);
}

Shape shape_of(int32_t ndim, const int64_t* sizes, std::string_view argument) {
  if (ndim < 0 || ndim > SHALE_MAX_DIMS) {
    fail_argument("ndim is ", ndim, ", expected 0 to ", SHALE_MAX_DIMS);
  }
  if (ndim > 0) wanted(sizes, argument);
  const Shape shape(std::span<const int64_t>(sizes, static_cast<size_t>(ndim)));
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] < 0) fail_argument(argument, " is ", shape, ", expected sizes of 0 or more");
  }
  if (shape.numel() > std::numeric_limits<int64_t>::max() / 8) {
    fail_argument(argument, " is ", shape, ", whose bytes exceed the address space");
  }
  return shape;
}

namespace {

// Marks memory as read-only while its storage exists, and releases it after the call.
struct Release {
  std::shared_ptr<const Storage*> place = std::make_shared<const Storage*>(nullptr);

  void run(std::function<void()> release) const {
    if (has_session()) session().read_only.erase(*place);
    if (release != nullptr) after_call(std::move(release));
  }
  void mark(const Tensor& x) const {
    *place = x.storage().get();
    session().read_only.insert(*place);
  }
};

}  // namespace

Tensor tensor_of_memory(const ForeignView& view, std::function<void()> release) {
  const Release by;
  const Tensor x = from_blob(*session().context, view.data, view.shape, view.dtype,
                             {.strides = view.strides,
                              .release = [by, release = std::move(release)] { by.run(release); }});
  if (view.read_only) by.mark(x);
  return x;
}

Tensor tensor_of_dlpack(void* managed, bool legacy) {
  const Release by;
  const DlpackOptions options{
      .run_release = [by](std::function<void()> release) { by.run(std::move(release)); }};
  Context& context = *session().context;
  if (legacy) return from_dlpack(context, static_cast<DLManagedTensor*>(managed), options);
  bool read_only = false;
  const Tensor x =
      from_dlpack(context, static_cast<DLManagedTensorVersioned*>(managed), options, &read_only);
  if (read_only) by.mark(x);
  return x;
}

bool is_read_only(const Tensor& x) {
  return session().read_only.contains(x.storage().get());
}

void check_writable(const Tensor& x) {
  if (is_read_only(x)) fail_argument("x is read-only external memory, ", x);
}

namespace {

void check_bytes(const Tensor& x, size_t bytes) {
  if (static_cast<int64_t>(bytes) != x.bytes()) {
    fail_argument("bytes is ", bytes, ", expected ", x.bytes(), " for ", x);
  }
}

Tensor clone_of(const Tensor& x) {
  const NoGrad no_grad(x.context());
  Tensor copy = empty(x.context(), x.shape(), x.dtype());
  copy_(copy, x);
  return copy;
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;
using shale::Tensor;

shale_status shale_tensor_from_host(shale_runtime runtime, const void* data, shale_dtype dtype,
                                    int32_t ndim, const int64_t* shape, shale_tensor* out) {
  return call_for_tensor("shale_tensor_from_host", out, [&] {
    check_runtime(runtime);
    const shale::Shape sizes = shape_of(ndim, shape, "shape");
    Tensor x = empty(*session().context, sizes, dtype_of_code(dtype), shale::MemoryTag::kData);
    if (x.bytes() > 0) x.context().copy(x.data(), wanted(data, "data"), x.bytes());
    return x;
  });
}

shale_status shale_tensor_from_memory(shale_runtime runtime, const shale_memory* memory,
                                      shale_tensor* out) {
  return call_for_tensor("shale_tensor_from_memory", out, [&] {
    check_runtime(runtime);
    const shale_memory defaults = SHALE_MEMORY_INIT;
    const shale_memory given = options_of(wanted(memory, "memory"), defaults, "memory");
    if (session().context->device().type != shale::DeviceType::kCpu) {
      fail_argument("memory is on the host, but the runtime's device is ",
                    to_string(session().context->device()), "; use shale_tensor_from_host()");
    }
    const shale::Shape shape = shape_of(given.ndim, given.shape, "memory->shape");
    const ForeignView view{.data = given.data,
                           .dtype = dtype_of_code(given.dtype),
                           .shape = shape,
                           .strides = given.strides == nullptr
                                          ? contiguous_strides(shape)
                                          : shape_of(given.ndim, given.strides, "strides"),
                           .read_only = given.read_only != 0};
    std::function<void()> release;
    if (given.release != nullptr) {
      release = [call = given.release, owner = given.owner] { call(owner); };
    }
    return tensor_of_memory(view, std::move(release));
  });
}

shale_status shale_tensor_full(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                               const int64_t* shape, double value, shale_tensor* out) {
  return call_for_tensor("shale_tensor_full", out, [&] {
    check_runtime(runtime);
    return full(*session().context, shape_of(ndim, shape, "shape"), dtype_of_code(dtype), value);
  });
}

shale_status shale_tensor_destroy(shale_tensor x) {
  return call("shale_tensor_destroy", [&] {
    session();
    take_handle(Kind::kTensor, x, "x");
    purge_retired();
  });
}

shale_status shale_tensor_share(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_tensor_share", out, [&] { return any_tensor_of(x, "x"); });
}

shale_status shale_tensor_describe(shale_tensor x, shale_tensor_info* out) {
  return call("shale_tensor_describe", [&] {
    const Tensor tensor = any_tensor_of(x, "x");
    shale_tensor_info info = SHALE_TENSOR_INFO_INIT;
    info.dtype = static_cast<shale_dtype>(tensor.dtype());
    info.ndim = tensor.ndim();
    for (int i = 0; i < tensor.ndim(); ++i) {
      info.shape[i] = tensor.shape()[i];
      info.strides[i] = tensor.strides()[i];
    }
    const bool has_memory = tensor.storage() != nullptr;
    info.data = has_memory ? tensor.data() : nullptr;
    info.requires_grad = tensor.requires_grad() ? 1 : 0;
    info.read_only = has_memory && is_read_only(tensor) ? 1 : 0;
    info.on_host = has_memory && &tensor.context() == session().host.get() ? 1 : 0;
    give(info, out, "out");
  });
}

shale_status shale_tensor_read(shale_tensor x, void* to, size_t bytes) {
  return call("shale_tensor_read", [&] {
    const Tensor tensor = tensor_of(x, "x");
    check_bytes(tensor, bytes);
    if (bytes == 0) return;
    if (shale::OpRecorder* recorder = shale::recorder_of(tensor)) recorder->read(tensor);
    const shale::NoGrad no_grad(tensor.context());
    const Tensor dense = contiguous(tensor);
    dense.context().copy(wanted(to, "to"), dense.data(), dense.bytes());
    dense.context().synchronize();
  });
}

shale_status shale_tensor_write(shale_tensor x, const void* from, size_t bytes) {
  return call("shale_tensor_write", [&] {
    Tensor tensor = tensor_of(x, "x");
    check_bytes(tensor, bytes);
    check_writable(tensor);
    if (bytes == 0) return;
    const shale::NoGrad no_grad(tensor.context());
    Tensor dense = empty(tensor.context(), tensor.shape(), tensor.dtype());
    dense.context().copy(dense.data(), wanted(from, "from"), dense.bytes());
    copy_(tensor, dense);
  });
}

shale_status shale_tensor_copy(shale_tensor to, shale_tensor x) {
  return call("shale_tensor_copy", [&] {
    Tensor target = tensor_of(to, "to");
    check_writable(target);
    const Tensor source = tensor_of(x, "x");
    const shale::NoGrad no_grad(source.context());
    copy_(target, source);
  });
}

shale_status shale_tensor_clone(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_tensor_clone", out, [&] { return clone_of(tensor_of(x, "x")); });
}

shale_status shale_tensor_detach(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_tensor_detach", out, [&] { return tensor_of(x, "x").detach(); });
}

shale_status shale_tensor_require_grad(shale_tensor x, int32_t on) {
  return call("shale_tensor_require_grad", [&] {
    Tensor tensor = any_tensor_of(x, "x");
    if (on != 0 && !is_float(tensor.dtype())) {
      fail_argument("x is ", tensor, ", expected floating-point numbers");
    }
    tensor.set_requires_grad(on != 0);
  });
}

shale_status shale_tensor_grad(shale_tensor x, shale_tensor* out) {
  return call("shale_tensor_grad", [&] {
    wanted(out, "out");
    const Tensor grad = any_tensor_of(x, "x").grad();
    if (grad.defined()) return give_tensor(clone_of(grad), out);
    *out = nullptr;
  });
}

shale_status shale_tensor_zero_grad(shale_tensor x) {
  return call("shale_tensor_zero_grad", [&] {
    const Tensor tensor = any_tensor_of(x, "x");
    shale::LeafState* leaf = tensor.impl().leaf.get();
    if (leaf == nullptr) return;
    if (!leaf->name.empty()) {
      fail_argument("x is the parameter ", leaf->name, "; use shale_zero_grad() of its model");
    }
    leaf->has_value = false;
  });
}
