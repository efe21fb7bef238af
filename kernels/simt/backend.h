#pragma once

// The two builds of a kernel file define functions with the same names, each in its own namespace,
// shale::kernels::cuda or shale::kernels::emu. Otherwise the linker could merge a template that
// both instantiate. The compiler decides, not __CUDA_ARCH__, because nvcc also parses device code
// in its host pass.
#ifdef __CUDACC__
#define SHALE_BACKEND cuda
#else
#define SHALE_BACKEND emu
#endif
