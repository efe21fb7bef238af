#include "shale/kernels/registry.h"

#include <mutex>
#include <tuple>

#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"
#include "shale/kernels/slots.h"

#ifdef SHALE_HAVE_CUBLASLT
#include "shale/kernels/cuda/gemm/cublaslt/gemm.h"
#endif
#ifdef SHALE_HAVE_NVRTC
#include "shale/kernels/cuda/nvrtc/pointwise.h"
#endif

namespace shale::kernels {
namespace {

#ifdef __CUDACC__
constexpr DeviceType kDevice = DeviceType::kCuda;
#else
constexpr DeviceType kDevice = DeviceType::kEmu;
#endif

void fill_slots() {
  std::apply([](auto&... slots) { (slots.set(kDevice, SHALE_BACKEND::run), ...); },
             slots_on_all_devices());
#ifdef SHALE_HAVE_NVRTC
  pointwise.set(kDevice, cuda::nvrtc::pointwise);
#endif
#ifdef SHALE_HAVE_CUBLASLT
  gemm.set(kDevice, cuda::cublaslt::gemm);
#endif
}

#ifdef __CUDACC__
__global__ void probe_kernel() {}  // never launched; kernel_arch() reads its attributes
#endif

}  // namespace

#ifdef __CUDACC__
int cuda::kernel_arch() {
  cudaFuncAttributes attributes{};
  cuda::check(cudaFuncGetAttributes(&attributes, probe_kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}
#endif

void SHALE_BACKEND::register_kernels() {
  static std::once_flag once;
  std::call_once(once, fill_slots);
}

}  // namespace shale::kernels
