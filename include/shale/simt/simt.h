#pragma once

// For custom GPU kernels in a .cu file of shale_add_kernels(). The file is compiled twice: by nvcc
// for CUDA, and by the host compiler for the emulated GPU, each time in a separate namespace,
// SHALE_BACKEND. simt::kDevice is the device whose slots that compilation fills.

#include "shale/kernels/simt/device.h"
#include "shale/kernels/simt/simt.h"
