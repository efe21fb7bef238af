#pragma once

#include <cstdint>
#include <string_view>

#include "shale/base/exec.h"

namespace shale::test {

// A kernel of one warp around one primitive of kernels/simt, compiled for both of its backends. It
// reads words that the test made and writes words that the test knows. What lane l reads and writes
// stands at its kernel in primitives.cu.
using RunPrimitive = void (*)(const Exec& exec, const uint32_t* in, uint32_t* out);

}  // namespace shale::test

// By name; null for an unknown one. The second only in builds with CUDA.
namespace shale::kernels::emu {
test::RunPrimitive find_primitive(std::string_view name);
}
namespace shale::kernels::cuda {
test::RunPrimitive find_primitive(std::string_view name);
}
