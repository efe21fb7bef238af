#pragma once

#include <cstdint>
#include <string>

namespace shale {

enum class DeviceType : uint8_t { kCpu, kCuda, kEmu };  // kEmu: a GPU that is emulated on the CPU
inline constexpr int kDeviceTypes = 3;

// The device that holds memory and runs kernels. `emu` runs the CUDA kernels on the CPU.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;  // GPU number on this node
  int arch = 0;   // compute capability times ten (80, 90); 0 on the CPU

  friend bool operator==(const Device&, const Device&) = default;
};

std::string to_string(DeviceType type);       // "cpu", "cuda", "emu"
std::string to_string(const Device& device);  // "cpu", "cuda:1", "emu:90"

}  // namespace shale
