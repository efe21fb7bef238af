#include "shale/base/device.h"

#include "shale/base/text.h"

namespace shale {

std::string to_string(DeviceType type) {
  switch (type) {
    case DeviceType::kCpu: return "cpu";
    case DeviceType::kCuda: return "cuda";
    case DeviceType::kEmu: return "emu";
  }
  return "unknown";
}

std::string to_string(const Device& device) {
  switch (device.type) {
    case DeviceType::kCuda: return cat("cuda:", device.index);
    case DeviceType::kEmu: return cat("emu:", device.arch);
    case DeviceType::kCpu: break;
  }
  return "cpu";
}

}  // namespace shale
