#pragma once

// Instructions for softmax, besides those of math.h (compute capability 8.0 and later).
//
//   fma_saturated(a, b, c)   a b + c, rounded once, clamped to [0, 1]; 0 for NaN
//   max_or_nan(a, b)         the larger one; NaN if one of them is NaN
//   add_exponent(x, n)       x 2^k, where k is the lowest 9 bits of n, as a signed integer; x and
//                            the result must be normal numbers

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/softmax.h"
#else
#include "shale/kernels/simt/emu/softmax.h"
#endif
