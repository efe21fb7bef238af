#pragma once

namespace shale::kernels {

// Fills the CPU entry of every slot. Called once per process, before the first kernel; later calls
// do nothing. It must be called explicitly, because a static library drops self-registering
// objects.
void register_cpu_kernels();

// Registers the kernels of kernels/cuda, which are built for two devices: the GPU (in builds with
// CUDA) and the emulator.
namespace cuda {
void register_kernels();
// Compute capability times ten that the kernels running on the current GPU were compiled for. It is
// lower than the GPU's own if the driver compiled them from PTX for an earlier one.
int kernel_arch();
}  // namespace cuda
namespace emu {
void register_kernels();
}

}  // namespace shale::kernels
