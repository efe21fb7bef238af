#pragma once

namespace shale::kernels {

// Fills the CPU entry of every slot. Called once per process, before the first kernel; later calls
// do nothing. Explicit, because a static library drops self-registering objects.
void register_cpu_kernels();

// The same for the kernels of kernels/cuda, which are built for two devices: the GPU (in builds
// with CUDA) and the emulator.
namespace cuda {
void register_kernels();
// Compute capability times ten that the current GPU's code of the kernels was compiled for: less
// than the GPU's own where the driver compiles it, from the PTX of an earlier one.
int kernel_arch();
}  // namespace cuda
namespace emu {
void register_kernels();
}

}  // namespace shale::kernels
