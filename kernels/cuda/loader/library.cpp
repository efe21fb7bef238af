// Entry points of the shared library with CUDA's kernels, called by loader.cpp.
#include "shale/kernels/registry.h"

extern "C" {

void shale_cuda_register_kernels() {
  shale::kernels::cuda::register_kernels();
}

int shale_cuda_kernel_arch() {
  return shale::kernels::cuda::kernel_arch();
}
}
