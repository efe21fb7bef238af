#pragma once

#include "shale/kernels/pointwise.h"

// Runs the kernel in test/fixtures/fused_kernel.txt, which pointwise_source()
// (kernels/pointwise_source.h) generated.
namespace shale::kernels::emu {
void run_fused_kernel(const Exec& exec, const PointwiseArgs& args);
}
namespace shale::kernels::cuda {
void run_fused_kernel(const Exec& exec, const PointwiseArgs& args);
}
