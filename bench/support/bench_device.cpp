#include "shale/bench/support/bench_device.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"

namespace shale::bench {

BenchDevice::BenchDevice(std::unique_ptr<DeviceBackend> backend, int threads)
    : KernelDevice(*backend, backend->create_stream(), threads), backend_(std::move(backend)) {}

BenchDevice::~BenchDevice() {
  backend_->destroy_stream(stream());
}

int64_t BenchDevice::several_caches(int64_t cache_bytes) {
  return std::clamp(4 * cache_bytes, int64_t{128} << 20, int64_t{1} << 30);
}

}  // namespace shale::bench
