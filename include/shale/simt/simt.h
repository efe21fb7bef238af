#pragma once

// What a GPU kernel of one's own includes, in a .cu file for shale_add_kernels(): the file is
// compiled for CUDA by nvcc, and for the emulated GPU by the host compiler, each time in a
// namespace of its own, SHALE_BACKEND, with simt::kDevice as the device whose slots it fills.

#include "shale/kernels/simt/device.h"
#include "shale/kernels/simt/simt.h"
