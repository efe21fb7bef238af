#pragma once

#include <string>

namespace shale::kernels::cuda::nvrtc {

// The whole text of a kernel that kernels/pointwise_source.h has written: what it stands on, and
// the kernel as `extern "C"`.
std::string whole_source(const std::string& kernel);

// PTX of such a text, for GPUs of this compute capability (times ten) and later ones. Products and
// sums stay apart, as nvcc keeps them. Throws UnavailableError without the library, InternalError,
// with the compiler's messages, for a text that it refuses.
std::string compile_to_ptx(const std::string& source, int arch);

}  // namespace shale::kernels::cuda::nvrtc
