#pragma once

// Instructions that softmax is made of, beside those of math.h (compute capability 8.0 on).
//
//   fma_saturated(a, b, c)   a b + c, rounded once, within [0, 1]; 0 for NaN
//   max_or_nan(a, b)         the larger one; NaN if one of them is
//   add_exponent(x, n)       x 2^k, where k is n's lowest 9 bits, as an integer with a sign; x and
//                            what comes out have to be normal numbers

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/softmax.h"
#else
#include "shale/kernels/simt/emu/softmax.h"
#endif
