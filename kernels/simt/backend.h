#pragma once

// The two builds of a kernel file are two sets of functions under the same names: each has its own
// namespace, shale::kernels::cuda or shale::kernels::emu, or the linker would take a template that
// both instantiate from either. Chosen by the compiler, not by __CUDA_ARCH__: nvcc reads device
// code in its pass for the host too.
#ifdef __CUDACC__
#define SHALE_BACKEND cuda
#else
#define SHALE_BACKEND emu
#endif
