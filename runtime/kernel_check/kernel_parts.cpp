#include "shale/runtime/kernel_check/kernel_parts.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/slot.h"

namespace shale::kernel_check {
namespace {

using kernels::KernelParts;

constexpr std::array<std::pair<KernelParts, const char*>, 4> kNames = {
    {{kernels::kHopperKernels, "hopper"},
     {kernels::kVendorKernels, "vendor"},
     {kernels::kFusedKernels, "fused"},
     {kernels::kEveryKernel, "all"}}};

}  // namespace

KernelParts parts_of(const Device& device, [[maybe_unused]] std::string_view slot) {
  switch (device.type) {
    case DeviceType::kCpu: break;
    case DeviceType::kEmu:
#ifdef SHALE_HAVE_EMULATOR
      return kernels::emu::parts_of(device, slot);
#endif
      break;
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      return kernels::cuda::parts_of(device, slot);
#endif
      break;
  }
  return 0;
}

void leave_out(const Device& device, [[maybe_unused]] std::string_view slot,
               [[maybe_unused]] KernelParts parts) {
  switch (device.type) {
    case DeviceType::kCpu: break;
    case DeviceType::kEmu:
#ifdef SHALE_HAVE_EMULATOR
      kernels::emu::leave_out(slot, parts);
#endif
      break;
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      kernels::cuda::leave_out(slot, parts);
#endif
      break;
  }
}

std::vector<std::string> names_of(std::string_view slot, KernelParts parts) {
  std::vector<std::string> names;
  for (const auto& [part, name] : kNames) {
    if ((parts & part) != 0) names.push_back(cat(slot, "/", name));
  }
  return names;
}

void leave_out(const Device& device, std::span<const std::string> names) {
  std::map<std::string, KernelParts> by_slot;
  for (const std::string& name : names) {
    bool is_known = false;
    for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
      for (const auto& [part, text] : kNames) {
        if (name != cat(slot->name(), "/", text)) continue;
        by_slot[slot->name()] |= part;
        is_known = true;
      }
    }
    if (!is_known) throw DataError(cat("kernels: '", name, "' is no kernel of this build"));
  }
  for (const auto& [slot, parts] : by_slot) leave_out(device, slot, parts);
}

}  // namespace shale::kernel_check
