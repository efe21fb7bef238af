#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/base/device.h"
#include "shale/base/error.h"

namespace shale {

// Out-of-memory error of an allocator. It contains the numbers from which a caller can compute a
// size that fits.
class DeviceOutOfMemory : public OutOfMemoryError {
 public:
  DeviceOutOfMemory(std::string message, Device device, int64_t budget_bytes, int64_t held_bytes)
      : OutOfMemoryError(std::move(message)),
        device_(device),
        budget_bytes_(budget_bytes),
        held_bytes_(held_bytes) {}

  const Device& device() const { return device_; }
  int64_t budget_bytes() const { return budget_bytes_; }  // limit of the allocator; 0: no limit
  // Bytes that the allocator had already reserved when its request was refused.
  int64_t held_bytes() const { return held_bytes_; }

 private:
  Device device_;
  int64_t budget_bytes_, held_bytes_;
};

// Returns the number of free bytes of a GPU; nullopt for devices that use the host's memory
// (base/host_memory.h).
std::optional<int64_t> free_memory(const Device& device);
int64_t free_cuda_memory(const Device& device);  // only in builds with CUDA

}  // namespace shale
