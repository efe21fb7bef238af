#include "shale/base/gpu_model.h"

#include "shale/base/error.h"
#include "shale/base/text.h"

namespace shale {
namespace {

constexpr size_t kLarge = size_t{227} << 10, kAmpere = size_t{163} << 10;
constexpr const char* kUnknown = "unknown";

}  // namespace

const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> models = {
      {75, "T4, RTX 20", kLeastBlockShared, 40, true},
      {80, "A100, A30", kAmpere, 108, true},
      {86, "RTX 3090, A40, A10", kGraphicsBlockShared, 82, true},
      {87, "Jetson Orin", kAmpere, 16, false},
      {89, "RTX 4090, L40S, L4", kGraphicsBlockShared, 128, true},
      {90, "H100, H200, GH200", kLarge, 132, true},
      {100, "B200, GB200", kLarge, 148, true},
      {103, "B300, GB300", kLarge, 148, false},
      {110, "Jetson Thor", kLarge, 20, false},
      {120, "RTX 5090, RTX PRO 6000", kGraphicsBlockShared, 170, true},
      {121, "GB10", kGraphicsBlockShared, 48, false},
  };
  return models;
}

GpuModel gpu_model(int arch) {
  const GpuModel unknown = {.arch = arch,
                            .examples = kUnknown,
                            .block_shared_bytes = kGraphicsBlockShared,
                            .multiprocessors = 108,
                            .emulated = false};
  for (const GpuModel& model : gpu_models()) {
    if (model.arch == arch) return model;
  }
  return unknown;
}

bool supports_bf16(const Device& device) {
  return device.type == DeviceType::kCpu || device.arch == 0 || device.arch >= kFirstWithBF16;
}

void check_dtype_of(const Device& device, DType dtype, std::string_view what) {
  if (dtype != DType::kBF16 || supports_bf16(device)) return;
  throw UnavailableError(cat(what, ": ", device, " of compute capability ",
                             capability_text(device.arch), " has no bf16, which needs ",
                             capability_text(kFirstWithBF16),
                             " or later; use --dtype fp16 or fp32"));
}

bool driver_compiles(const Device& gpu, int kernel_arch) {
  return gpu.arch / 10 > kernel_arch / 10;
}

std::string kernels_text(const Device& gpu, int kernel_arch) {
  if (gpu.arch < kOldestArch) {
    const std::string examples = gpu_model(gpu.arch).examples;
    return cat("no kernels for ", gpu, " of compute capability ", capability_text(gpu.arch),
               examples == kUnknown ? "" : cat(" (", examples, ")"), ", expected ",
               capability_text(kOldestArch), " or later, which has the instruction mma.m16n8k8");
  }
  if (driver_compiles(gpu, kernel_arch)) {
    return cat("the driver compiles the PTX of the kernels (", capability_text(kernel_arch),
               ") for ", gpu, " of compute capability ", capability_text(gpu.arch),
               " when a program first runs; to avoid this wait, build with ",
               "-DSHALE_CUDA_ARCHITECTURES=\"", gpu.arch, "-real;", kernel_arch, "-virtual\"");
  }
  return cat("machine code for ", capability_text(kernel_arch),
             gpu.arch == 90 && kernel_arch == 90 ? ", with the kernels for Hopper" : "");
}

std::string capability_text(int arch) {
  return cat(arch / 10, ".", arch % 10);
}

std::vector<std::string> emulated_names() {
  std::vector<std::string> names;
  for (const GpuModel& model : gpu_models()) {
    if (model.emulated) names.push_back(cat("emu:", model.arch));
  }
  return names;
}

Device emulated_device(std::string_view name) {
  for (const GpuModel& model : gpu_models()) {
    if (model.emulated && name == cat("emu:", model.arch)) {
      return {.type = DeviceType::kEmu, .arch = model.arch};
    }
  }
  std::string known;
  for (const std::string& emulated : emulated_names()) {
    known += cat(known.empty() ? "" : ", ", emulated);
  }
  throw ConfigError(cat("device: expected one of ", known, ", found '", name, "'"));
}

std::vector<std::string> device_choices() {
  std::vector<std::string> names = {"auto", "cpu", "cuda", "emu"};
  for (std::string& name : emulated_names()) names.push_back(std::move(name));
  return names;
}

}  // namespace shale
