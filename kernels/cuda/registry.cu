#include "shale/kernels/registry.h"

#include <mutex>

#include "shale/kernels/cuda/gpu_kernels.h"
#include "shale/kernels/simt/simt.h"

#ifdef SHALE_HAVE_CUBLASLT
#include "shale/kernels/cuda/gemm/cublaslt/gemm.h"
#endif

namespace shale::kernels {
namespace {

#ifdef __CUDACC__
constexpr DeviceType kDevice = DeviceType::kCuda;
#else
constexpr DeviceType kDevice = DeviceType::kEmu;
#endif

void fill_slots() {
  namespace gpu = SHALE_BACKEND;
  // One line per slot, by file.
  attention_fwd.set(kDevice, gpu::attention_fwd);
  attention_bwd.set(kDevice, gpu::attention_bwd);
  axpby.set(kDevice, gpu::axpby);
  mul.set(kDevice, gpu::mul);
  fill.set(kDevice, gpu::fill);
  copy.set(kDevice, gpu::copy);
  gelu_fwd.set(kDevice, gpu::gelu_fwd);
  gelu_bwd.set(kDevice, gpu::gelu_bwd);
  swiglu_fwd.set(kDevice, gpu::swiglu_fwd);
  dropout.set(kDevice, gpu::dropout);
#ifdef SHALE_HAVE_CUBLASLT
  gemm.set(kDevice, gpu::cublaslt::gemm);
#else
  gemm.set(kDevice, gpu::gemm);
#endif
  layer_norm_fwd.set(kDevice, gpu::layer_norm_fwd);
  layer_norm_bwd.set(kDevice, gpu::layer_norm_bwd);
  rms_norm_fwd.set(kDevice, gpu::rms_norm_fwd);
  rms_norm_bwd.set(kDevice, gpu::rms_norm_bwd);
  cross_entropy.set(kDevice, gpu::cross_entropy);
  embedding_fwd.set(kDevice, gpu::embedding_fwd);
  embedding_bwd.set(kDevice, gpu::embedding_bwd);
  adamw.set(kDevice, gpu::adamw);
  adamw_8bit.set(kDevice, gpu::adamw_8bit);
  lion.set(kDevice, gpu::lion);
  sgd.set(kDevice, gpu::sgd);
  adafactor_means.set(kDevice, gpu::adafactor_means);
  adafactor_average.set(kDevice, gpu::adafactor_average);
  adafactor_squares.set(kDevice, gpu::adafactor_squares);
  adafactor.set(kDevice, gpu::adafactor);
  random_normal.set(kDevice, gpu::random_normal);
  column_sum.set(kDevice, gpu::column_sum);
  sum.set(kDevice, gpu::sum);
  sum_squares.set(kDevice, gpu::sum_squares);
  clip_factor.set(kDevice, gpu::clip_factor);
  update_loss_scale.set(kDevice, gpu::update_loss_scale);
  tree_sum.set(kDevice, gpu::tree_sum);
}

#ifdef __CUDACC__
__global__ void probe_kernel() {}  // compiled as all are; never launched
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
