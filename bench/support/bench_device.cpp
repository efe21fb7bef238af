#include "shale/bench/support/bench_device.h"

#include <algorithm>
#include <vector>

#include "shale/base/error.h"

namespace shale::bench {

BenchDevice::BenchDevice(std::unique_ptr<DeviceBackend> backend, int threads)
    : backend_(std::move(backend)), stream_(backend_->create_stream()), threads_(threads) {}

BenchDevice::~BenchDevice() {
  backend_->destroy_stream(stream_);
}

int64_t BenchDevice::several_caches(int64_t cache_bytes) {
  return std::clamp(4 * cache_bytes, int64_t{128} << 20, int64_t{1} << 30);
}

DeviceMemory::DeviceMemory(BenchDevice& device, size_t bytes)
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
    device_.synchronize();  // before the buffer is freed: kernels may still use it
    memory_.reset();
    memory_ = std::make_unique<DeviceMemory>(device_, bytes);
  }
  return memory_->data();
}

}  // namespace shale::bench
