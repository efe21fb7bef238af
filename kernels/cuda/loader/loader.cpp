// Loads the shared library with CUDA's kernels when a run on GPUs starts.
#include <dlfcn.h>

#include "shale/base/error.h"
#include "shale/kernels/registry.h"

namespace shale::kernels {
namespace {

constexpr const char* kName = "libshale_cuda.so";

// Returns the function of this name. The library stays loaded, because slots point into it.
template <typename Function>
Function* load(const char* name) {
  static void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) {
    const char* const reason = dlerror();
    throw UnavailableError(
        cat("device cuda: cannot load ", kName,
            ", expected beside libshale.so: ", reason != nullptr ? reason : name));
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace

void cuda::register_kernels() {
  load<void()>("shale_cuda_register_kernels")();
}

int cuda::kernel_arch() {
  return load<int()>("shale_cuda_kernel_arch")();
}

KernelParts cuda::parts_of(const Device& device, std::string_view slot) {
  return load<unsigned(const Device*, const char*, size_t)>("shale_cuda_parts_of")(
      &device, slot.data(), slot.size());
}

void cuda::leave_out(std::string_view slot, KernelParts parts) {
  load<void(const char*, size_t, unsigned)>("shale_cuda_leave_out")(slot.data(), slot.size(),
                                                                    parts);
}

}  // namespace shale::kernels
