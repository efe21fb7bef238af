#include "kernels/registry.h"

#include <mutex>

#include "kernels/cuda/gpu_kernels.h"

namespace shale::kernels {
namespace {

#ifdef __CUDACC__
constexpr DeviceType kDevice = DeviceType::kCuda;
#else
constexpr DeviceType kDevice = DeviceType::kEmu;
#endif

void fill_slots() {
  namespace gpu = SHALE_BACKEND;
  axpby.set(kDevice, gpu::axpby);
}

}  // namespace

void SHALE_BACKEND::register_kernels() {
  static std::once_flag once;
  std::call_once(once, fill_slots);
}

}  // namespace shale::kernels
