#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/base/device.h"
#include "shale/base/error.h"

namespace shale {

// Out-of-memory error of an allocator, with the numbers that a caller needs to suggest a size that
// fits.
class DeviceOutOfMemory : public OutOfMemoryError {
 public:
  DeviceOutOfMemory(std::string message, Device device, int64_t budget_bytes, int64_t held_bytes)
      : OutOfMemoryError(std::move(message)),
        device_(device),
        budget_bytes_(budget_bytes),
        held_bytes_(held_bytes) {}

  const Device& device() const { return device_; }
  int64_t budget_bytes() const { return budget_bytes_; }  // 0: no budget
  // Bytes that the allocator had reserved when the device or the budget refused more.
  int64_t held_bytes() const { return held_bytes_; }

 private:
  Device device_;
  int64_t budget_bytes_, held_bytes_;
};

// Returns the bytes that a GPU has free; nullopt for devices whose memory is that of the host
// (base/host_memory.h).
std::optional<int64_t> free_memory(const Device& device);
int64_t free_cuda_memory(const Device& device);  // only in builds with CUDA

}  // namespace shale
