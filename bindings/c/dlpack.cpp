// DLPack 1.1 (dmlc.github.io/dlpack). Declares its structs, because Debian's have an older layout.
#include <array>

#include "shale/bindings/c/memory.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/parallel/data/fully_shard.h"

namespace shale::c {
namespace {

struct DlDevice {
  int32_t type = 0;
  int32_t id = 0;
};
constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3;

struct DlDataType {
  uint8_t code = 0;
  uint8_t bits = 0;
  uint16_t lanes = 0;
};

struct DlTensor {
  void* data = nullptr;
  DlDevice device;
  int32_t ndim = 0;
  DlDataType dtype;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // null: the tensor is dense, as older producers write it
  uint64_t byte_offset = 0;
};

struct DlManagedLegacy {
  DlTensor tensor;
  void* owner = nullptr;
  void (*deleter)(DlManagedLegacy*) = nullptr;
};

struct DlManaged {
  uint32_t major = 0, minor = 0;
  void* owner = nullptr;
  void (*deleter)(DlManaged*) = nullptr;
  uint64_t flags = 0;
  DlTensor tensor;
};
constexpr uint64_t kReadOnly = 1;
constexpr uint32_t kMajor = 1, kMinor = 1;

// DLPack's type {code, bits, lanes} of each DType; code 2 for floats, 4 for bfloat16.
constexpr std::array<DlDataType, 9> kTypes = {{{2, 32, 1},
                                               {4, 16, 1},
                                               {2, 16, 1},
                                               {2, 64, 1},
                                               {0, 32, 1},
                                               {0, 64, 1},
                                               {1, 8, 1},
                                               {1, 16, 1},
                                               {1, 32, 1}}};

DType dtype_of(const DlDataType& type) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    const DlDataType& known = kTypes[i];
    if (type.code == known.code && type.bits == known.bits && type.lanes == known.lanes) {
      return static_cast<DType>(i);
    }
  }
  fail_argument("the DLPack tensor has elements of type code ", int(type.code), ", ",
                int(type.bits), " bits, ", int(type.lanes),
                " lanes; expected f32, bf16, f16, f64, i32, i64, u8, u16 or u32, one lane");
}

DlDevice device_of(const Context& context) {
  if (context.device().type == DeviceType::kCuda) return {kDlCuda, context.device().index};
  if (context.device().type == DeviceType::kCpu) return {kDlCpu, 0};
  fail_argument("x is on ", to_string(context.device()),
                ", a device that DLPack does not have; use shale_tensor_read()");
}

// Tensor that a DLPack consumer owns. The context is declared first, so that it is destroyed last.
struct Export {
  std::shared_ptr<Context> context;
  Tensor tensor;
  Shape shape, strides;
  DlManaged managed;
  DlManagedLegacy legacy;
};

// Called by the consumer, possibly on any thread and with its own locks held.
void release_export(void* owner) noexcept {
  in_some_call([owner] { const std::unique_ptr<Export> gone(static_cast<Export*>(owner)); });
}

// Returns true for memory of parameters, which all ranks own and which is freed with the runtime.
bool is_parameter_memory(const Tensor& x, const Tree& tree) {
  for (const Parameter* parameter : tree.root().parameters()) {
    if (parameter->value.storage() == x.storage()) return true;
  }
  if (tree.root().attachment() == nullptr) return false;
  for (const OptimShard& shard : comm::optim_shards(tree.root())) {
    for (const Tensor& memory : {shard.master, shard.grad, shard.compute}) {
      if (memory.defined() && memory.storage() == x.storage()) return true;
    }
  }
  return false;
}

DlTensor describe(Export& shown) {
  const Tensor& x = shown.tensor;
  return {.data = x.numel() == 0 ? nullptr : x.data(),
          .device = device_of(x.context()),
          .ndim = x.ndim(),
          .dtype = kTypes[static_cast<size_t>(x.dtype())],
          .shape = shown.shape.ndim() == 0 ? nullptr : &shown.shape[0],
          .strides = shown.shape.ndim() == 0 ? nullptr : &shown.strides[0],
          .byte_offset = 0};
}

void* export_tensor(const Tensor& x, bool legacy) {
  const bool read_only = is_read_only(x);
  if (read_only && legacy) {
    fail_argument(
        "x is read-only, which the legacy struct cannot express; use legacy 0, or "
        "shale_tensor_clone()");
  }
  for_each_tree([&x](const Tree& tree) {
    if (is_parameter_memory(x, tree)) {
      fail_argument("x is memory of a parameter; use shale_tensor_clone() of it");
    }
  });
  auto shown = std::make_unique<Export>();
  shown->context = session().context;
  shown->tensor = x.detach();
  shown->shape = x.shape();
  shown->strides = x.strides();
  x.context().synchronize();
  if (legacy) {
    shown->legacy = {.tensor = describe(*shown),
                     .owner = shown.get(),
                     .deleter = [](DlManagedLegacy* self) { release_export(self->owner); }};
    return &shown.release()->legacy;
  }
  shown->managed = {.major = kMajor,
                    .minor = kMinor,
                    .owner = shown.get(),
                    .deleter = [](DlManaged* self) { release_export(self->owner); },
                    .flags = read_only ? kReadOnly : 0,
                    .tensor = describe(*shown)};
  return &shown.release()->managed;
}

void check_device(const DlDevice& device) {
  const Device& own = session().context->device();
  const bool host = device.type == kDlCpu || device.type == kDlCudaHost;
  const bool fits =
      (own.type == DeviceType::kCpu && host) ||
      (own.type == DeviceType::kCuda && device.type == kDlCuda && device.id == own.index);
  if (!fits) {
    fail_argument("the DLPack tensor is on device type ", device.type, " number ", device.id,
                  ", and the runtime on ", to_string(own));
  }
}

ForeignView view_of(const DlTensor& tensor, bool read_only) {
  check_device(tensor.device);
  const Shape shape = shape_of(tensor.ndim, tensor.shape, "the DLPack tensor's shape");
  auto* data = static_cast<std::byte*>(tensor.data);
  if (data != nullptr) data += tensor.byte_offset;
  return {.data = data,
          .dtype = dtype_of(tensor.dtype),
          .shape = shape,
          .strides = tensor.strides == nullptr
                         ? contiguous_strides(shape)
                         : shape_of(tensor.ndim, tensor.strides, "the DLPack tensor's strides"),
          .read_only = read_only};
}

Tensor import_tensor(void* managed, bool legacy) {
  if (legacy) {
    auto* const given = static_cast<DlManagedLegacy*>(managed);
    return tensor_of_memory(view_of(given->tensor, false), [given] {
      if (given->deleter != nullptr) given->deleter(given);
    });
  }
  auto* const given = static_cast<DlManaged*>(managed);
  if (given->major != kMajor) {
    fail_argument("managed is DLPack ", given->major, ".", given->minor, ", expected ", kMajor,
                  ".x");
  }
  return tensor_of_memory(view_of(given->tensor, (given->flags & kReadOnly) != 0), [given] {
    if (given->deleter != nullptr) given->deleter(given);
  });
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;

shale_status shale_tensor_to_dlpack(shale_tensor x, int32_t legacy, void** out) {
  return call("shale_tensor_to_dlpack", [&] {
    wanted(out, "out");
    *out = export_tensor(tensor_of(x, "x"), legacy != 0);
  });
}

shale_status shale_tensor_from_dlpack(shale_runtime runtime, void* managed, int32_t legacy,
                                      shale_tensor* out) {
  return call_for_tensor("shale_tensor_from_dlpack", out, [&] {
    check_runtime(runtime);
    return import_tensor(wanted(managed, "managed"), legacy != 0);
  });
}
