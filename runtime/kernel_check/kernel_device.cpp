#include "shale/runtime/kernel_check/kernel_device.h"

#include <algorithm>
#include <vector>

namespace shale::kernel_check {

DeviceMemory::DeviceMemory(KernelDevice& device, size_t bytes)
    : device_(device), bytes_(std::max<size_t>(bytes, 1)) {
  data_ = device_.backend().memory().allocate(bytes_);
  if (device_.device().type == DeviceType::kCpu) return;  // new CPU memory is zero
  const std::vector<std::byte> zeros(std::min(bytes_, size_t{16} << 20));
  for (size_t at = 0; at < bytes_; at += zeros.size()) {
    device_.backend().copy(static_cast<std::byte*>(data_) + at, zeros.data(),
                           std::min(zeros.size(), bytes_ - at), device_.stream());
  }
}

DeviceMemory::~DeviceMemory() {
  device_.backend().memory().free(data_, bytes_);
}

void* DeviceWorkspace::reserve(size_t bytes) {
  if (!memory_ || memory_->bytes() < bytes) {
    device_.synchronize();  // kernels may still use the buffer, so wait before it is freed
    memory_.reset();
    memory_ = std::make_unique<DeviceMemory>(device_, bytes);
  }
  return memory_->data();
}

}  // namespace shale::kernel_check
