#pragma once

#include <string_view>

#include "shale/base/device.h"

namespace shale::kernels {

// Groups of kernels that a slot uses on GPUs where possible, instead of its kernels for every GPU.
// A group can be left out, for example because a GPU computes it wrong.
using KernelParts = unsigned;
inline constexpr KernelParts kHopperKernels = 1;  // kernels for compute capability 9.0
inline constexpr KernelParts kVendorKernels = 2;  // cuBLASLt and cuDNN; kernels made by NVRTC
inline constexpr KernelParts kFusedKernels = 4;   // GEMMs with GELU or SwiGLU in their epilogue
// kHopperKernels, kVendorKernels and kFusedKernels
inline constexpr KernelParts kOptionalParts = 7;
inline constexpr KernelParts kEveryKernel = 8;  // all kernels: the slot cannot run

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
// Returns the optional parts that the slot has on a device of this type.
KernelParts parts_of(const Device& device, std::string_view slot);
// Stops later calls of the slot, on all devices of this type, from using these parts; 0: none. With
// kEveryKernel a call throws UnavailableError. A GEMM without kFusedKernels runs as a plain GEMM
// and elementwise kernels: c is rounded after the plain GEMM, and must be contiguous.
void leave_out(std::string_view slot, KernelParts parts);
}  // namespace cuda
namespace emu {
void register_kernels();
KernelParts parts_of(const Device& device, std::string_view slot);
void leave_out(std::string_view slot, KernelParts parts);
}  // namespace emu

}  // namespace shale::kernels
