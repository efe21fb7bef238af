#pragma once

// Conversions and fast approximations; the exact functions are those of <cmath> (expf, fmaxf, fmaf,
// ...).
//
//   to_float(x)         f32, bf16 or f16 to f32, exact
//   from_float<T>(x)    rounds to nearest, ties to even
//   pack_pair<T>(a, b)  two bf16 or f16 in a register, a in the lower half
//   fast_exp2(x)        2^x within 2 ulp; subnormals count as zero
//   fast_log2(x)        log2(x) within 2^-22 (absolute or relative); -inf for subnormals
//   fast_rcp(x)         1/x within 1 ulp
//   fast_rsqrt(x)       1/sqrt(x) within 2 ulp
//   opaque(x)           returns the int x, hidden from the compiler: values computed from it in a
//                       loop are not moved before the loop, where they would occupy registers

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/math.h"
#else
#include "shale/kernels/simt/emu/math.h"
#endif
