#pragma once

// For custom GPU kernels in a .cu file of shale_add_kernels(). nvcc compiles the file for CUDA, and
// the host compiler compiles it for the emulated GPU, each in a separate namespace,
// SHALE_BACKEND. simt::kDevice is the device whose slots that compilation fills.

#include "shale/kernels/simt/device.h"
#include "shale/kernels/simt/simt.h"
