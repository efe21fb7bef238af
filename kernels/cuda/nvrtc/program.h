#pragma once

#include <string>

namespace shale::kernels::cuda::nvrtc {

// Returns the complete source of a kernel that pointwise_source() wrote: everything it depends on,
// and the kernel as `extern "C"`.
std::string whole_source(const std::string& kernel);

// Compiles a source from whole_source() to machine code for GPUs of this compute capability (times
// ten); unlike PTX, it also runs with older drivers. Multiplications and additions are not fused,
// as with nvcc. Throws UnavailableError without the library, and InternalError with the compiler's
// messages if it rejects the source or the compute capability.
std::string compile_to_cubin(const std::string& source, int arch);

}  // namespace shale::kernels::cuda::nvrtc
