// Declares DLPack's structs, because Debian's header has an older layout.
#include "shale/runtime/tensor/dlpack.h"

#include <array>

#include "shale/base/error.h"
#include "shale/runtime/tensor/foreign_memory.h"

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
  int64_t* strides = nullptr;  // null: the tensor is dense; older producers write this
  uint64_t byte_offset = 0;
};

constexpr uint64_t kReadOnly = 1;
constexpr uint32_t kMajor = 1, kMinor = 1;

}  // namespace

struct DLManagedTensor {
  DlTensor tensor;
  void* owner = nullptr;
  void (*deleter)(DLManagedTensor*) = nullptr;
};

struct DLManagedTensorVersioned {
  uint32_t major = 0, minor = 0;
  void* owner = nullptr;
  void (*deleter)(DLManagedTensorVersioned*) = nullptr;
  uint64_t flags = 0;
  DlTensor tensor;
};

namespace shale {
namespace {

// DLPack's type {code, bits, lanes} of each DType. The codes are 0 for signed and 1 for unsigned
// integers, 2 for floats, 4 for bfloat16.
constexpr std::array<DlDataType, 9> kTypes = {{{2, 32, 1},
                                               {4, 16, 1},
                                               {2, 16, 1},
                                               {2, 64, 1},
                                               {0, 32, 1},
                                               {0, 64, 1},
                                               {1, 8, 1},
                                               {1, 16, 1},
                                               {1, 32, 1}}};

DType dtype_of_type(const DlDataType& type) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    const DlDataType& known = kTypes[i];
    if (type.code == known.code && type.bits == known.bits && type.lanes == known.lanes) {
      return static_cast<DType>(i);
    }
  }
  throw DTypeError(cat("from_dlpack: the tensor has elements of type code ", int(type.code), ", ",
                       int(type.bits), " bits, ", int(type.lanes),
                       " lanes; expected f32, bf16, f16, f64, i32, i64, u8, u16 or u32, one lane"));
}

DlDevice device_of(const Context& context) {
  if (context.device().type == DeviceType::kCuda) return {kDlCuda, context.device().index};
  if (context.device().type == DeviceType::kCpu) return {kDlCpu, 0};
  throw ShapeError(cat("to_dlpack: x is on ", context.device(),
                       ", a device that DLPack does not have; copy it to the host"));
}

// An exported tensor. The reader owns it until it calls the deleter.
template <class Managed>
struct Export {
  DlpackOptions options;
  Tensor tensor;
  Shape shape, strides;
  Managed managed;
};

template <class Managed>
void release_export(Managed* managed) {
  auto* const shown = static_cast<Export<Managed>*>(managed->owner);
  const auto run = shown->options.run_release;
  const auto release = [shown] {
    const std::shared_ptr<void> owner = shown->options.owner;  // the owner is destroyed last
    delete shown;
  };
  run ? run(release) : release();
}

template <class Managed>
Managed* export_tensor(const Tensor& x, const DlpackOptions& options) {
  check_defined("to_dlpack", "x", x);
  auto shown = std::make_unique<Export<Managed>>();
  shown->options = options;
  shown->tensor = x.detach();
  shown->shape = x.shape();
  shown->strides = x.strides();
  x.context().synchronize();
  shown->managed.tensor = {.data = x.numel() == 0 ? nullptr : x.data(),
                           .device = device_of(x.context()),
                           .ndim = x.ndim(),
                           .dtype = kTypes[static_cast<size_t>(x.dtype())],
                           .shape = shown->shape.ndim() == 0 ? nullptr : &shown->shape[0],
                           .strides = shown->shape.ndim() == 0 ? nullptr : &shown->strides[0],
                           .byte_offset = 0};
  shown->managed.owner = shown.get();
  shown->managed.deleter = release_export<Managed>;
  return &shown.release()->managed;
}

void check_device(const DlDevice& device, const Device& own) {
  const bool host = device.type == kDlCpu || device.type == kDlCudaHost;
  const bool fits =
      (own.type == DeviceType::kCpu && host) ||
      (own.type == DeviceType::kCuda && device.type == kDlCuda && device.id == own.index);
  if (fits) return;
  throw ShapeError(cat("from_dlpack: the tensor is on device type ", device.type, " number ",
                       device.id, ", expected ", own));
}

Shape shape_of(int32_t ndim, const int64_t* sizes) {
  if (ndim < 0 || ndim > kMaxDims || (ndim > 0 && sizes == nullptr)) {
    throw ShapeError(cat("from_dlpack: the tensor has ", ndim, " dimensions, expected 0 to ",
                         kMaxDims, " dimensions and an array of their sizes"));
  }
  return Shape(std::span<const int64_t>(sizes, static_cast<size_t>(ndim)));
}

template <class Managed>
Tensor import_tensor(Context& context, Managed* managed, const DlpackOptions& options) {
  const DlTensor& tensor = managed->tensor;
  check_device(tensor.device, context.device());
  BlobOptions blob;
  if (tensor.strides != nullptr) blob.strides = shape_of(tensor.ndim, tensor.strides);
  blob.release = [managed, run = options.run_release] {
    const auto release = [managed] {
      if (managed->deleter != nullptr) managed->deleter(managed);
    };
    run ? run(release) : release();
  };
  auto* data = static_cast<std::byte*>(tensor.data);
  if (data != nullptr) data += tensor.byte_offset;
  return from_blob(context, data, shape_of(tensor.ndim, tensor.shape), dtype_of_type(tensor.dtype),
                   blob);
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& x, const DlpackOptions& options) {
  auto* const managed = export_tensor<DLManagedTensorVersioned>(x, options);
  managed->major = kMajor;
  managed->minor = kMinor;
  managed->flags = options.read_only ? kReadOnly : 0;
  return managed;
}

DLManagedTensor* to_dlpack_legacy(const Tensor& x, const DlpackOptions& options) {
  if (options.read_only) {
    throw ShapeError(
        "to_dlpack_legacy: x is read-only, which the legacy struct cannot express; "
        "use to_dlpack(), or export a copy");
  }
  return export_tensor<DLManagedTensor>(x, options);
}

Tensor from_dlpack(Context& context, DLManagedTensorVersioned* managed,
                   const DlpackOptions& options, bool* read_only) {
  if (managed->major != kMajor) {
    throw ShapeError(cat("from_dlpack: managed is DLPack ", managed->major, ".", managed->minor,
                         ", expected ", kMajor, ".x"));
  }
  const bool must_not_write = (managed->flags & kReadOnly) != 0;
  if (must_not_write && read_only == nullptr) {
    throw ShapeError(
        "from_dlpack: the memory is read-only, which tensors cannot be; import a copy");
  }
  if (read_only != nullptr) *read_only = must_not_write;
  return import_tensor(context, managed, options);
}

Tensor from_dlpack(Context& context, DLManagedTensor* managed, const DlpackOptions& options) {
  return import_tensor(context, managed, options);
}

}  // namespace shale
