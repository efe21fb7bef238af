// Entry points of the shared library with CUDA's kernels, called by loader.cpp.
#include "shale/kernels/registry.h"

extern "C" {

void shale_cuda_register_kernels() {
  shale::kernels::cuda::register_kernels();
}

int shale_cuda_kernel_arch() {
  return shale::kernels::cuda::kernel_arch();
}

unsigned shale_cuda_parts_of(const shale::Device* device, const char* slot, size_t length) {
  return shale::kernels::cuda::parts_of(*device, {slot, length});
}

void shale_cuda_leave_out(const char* slot, size_t length, unsigned parts) {
  shale::kernels::cuda::leave_out({slot, length}, parts);
}
}
