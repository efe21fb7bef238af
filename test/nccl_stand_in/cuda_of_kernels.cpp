// Stand-in for the CUDA runtime functions that kernels and the device backend link to in builds
// with CUDA. Without a GPU only those run with which kernels register themselves at program start.
#include <cstdio>
#include <cstdlib>

// CUDA's headers are not included, as functions that are never called need no right prototypes.
#define SHALE_IGNORED(name) \
  void* name() {            \
    static void* handle;    \
    return &handle;         \
  }
#define SHALE_NOT_CALLED(name)                                             \
  void name() {                                                            \
    std::fputs(#name " was called, which the stand-in has not\n", stderr); \
    std::abort();                                                          \
  }

extern "C" {

SHALE_IGNORED(__cudaRegisterFatBinary)
SHALE_IGNORED(__cudaRegisterFatBinaryEnd)
SHALE_IGNORED(__cudaUnregisterFatBinary)
SHALE_IGNORED(__cudaRegisterFunction)
SHALE_IGNORED(__cudaRegisterVar)

SHALE_NOT_CALLED(__cudaGetKernel)
SHALE_NOT_CALLED(__cudaLaunchKernel)
SHALE_NOT_CALLED(__cudaPopCallConfiguration)
SHALE_NOT_CALLED(cudaGetDriverEntryPointByVersion)
SHALE_NOT_CALLED(cudaLaunchKernelExC)

}  // extern "C"
