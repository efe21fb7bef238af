#pragma once

#include <cstdint>
#include <string_view>

#include "shale/base/exec.h"

namespace shale::test {

// A kernel of one warp around one primitive of kernels/simt, compiled for both backends. It reads a
// test's input words, and writes words that the test checks. primitives.cu describes each lane's
// words.
using RunPrimitive = void (*)(const Exec& exec, const uint32_t* in, uint32_t* out);

}  // namespace shale::test

// Returns a kernel by name; null if there is none. The cuda version exists only in builds with
// CUDA.
namespace shale::kernels::emu {
test::RunPrimitive find_primitive(std::string_view name);
}
namespace shale::kernels::cuda {
test::RunPrimitive find_primitive(std::string_view name);
}
