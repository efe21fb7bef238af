// CUDA runtime functions that kernels and the device backend link to in builds with CUDA. None of
// them runs without a GPU, but kernels register themselves at program start.
#include <cstdio>
#include <cstdlib>

// CUDA's headers are not included: prototypes do not matter for functions that are never called.
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
SHALE_NOT_CALLED(cudaDeviceGetAttribute)
SHALE_NOT_CALLED(cudaDeviceGetStreamPriorityRange)
SHALE_NOT_CALLED(cudaEventCreateWithFlags)
SHALE_NOT_CALLED(cudaFree)
SHALE_NOT_CALLED(cudaFreeHost)
SHALE_NOT_CALLED(cudaFuncGetAttributes)
SHALE_NOT_CALLED(cudaFuncGetName)
SHALE_NOT_CALLED(cudaFuncSetAttribute)
SHALE_NOT_CALLED(cudaGetDeviceCount)
SHALE_NOT_CALLED(cudaGetDriverEntryPointByVersion)
SHALE_NOT_CALLED(cudaGetErrorName)
SHALE_NOT_CALLED(cudaGetErrorString)
SHALE_NOT_CALLED(cudaGraphDestroy)
SHALE_NOT_CALLED(cudaGraphExecDestroy)
SHALE_NOT_CALLED(cudaGraphInstantiateWithFlags)
SHALE_NOT_CALLED(cudaGraphLaunch)
SHALE_NOT_CALLED(cudaHostAlloc)
SHALE_NOT_CALLED(cudaHostRegister)
SHALE_NOT_CALLED(cudaHostUnregister)
SHALE_NOT_CALLED(cudaLaunchKernelExC)
SHALE_NOT_CALLED(cudaMalloc)
SHALE_NOT_CALLED(cudaMemcpyAsync)
SHALE_NOT_CALLED(cudaPointerGetAttributes)
SHALE_NOT_CALLED(cudaStreamBeginCapture)
SHALE_NOT_CALLED(cudaStreamCreateWithPriority)
SHALE_NOT_CALLED(cudaStreamDestroy)
SHALE_NOT_CALLED(cudaStreamEndCapture)
SHALE_NOT_CALLED(cudaStreamIsCapturing)
SHALE_NOT_CALLED(cudaStreamSynchronize)
SHALE_NOT_CALLED(cudaStreamWaitEvent)
SHALE_NOT_CALLED(cudaThreadExchangeStreamCaptureMode)

}  // extern "C"
