#pragma once

// Conversions and fast functions; the exact ones are <cmath>'s (expf, fmaxf, fmaf, ...).
//
//   to_float(x)         f32, bf16 or f16 to f32, exact
//   from_float<T>(x)    rounds to nearest, ties to even
//   pack_pair<T>(a, b)  two bf16 or f16 in a register, a in the lower half
//   fast_exp2(x)        2^x within 2 ulp; subnormals count as zero
//   fast_log2(x)        log2(x) within 2^-22, or 2^-22 of it; of subnormals -inf
//   fast_rcp(x)         1/x within 1 ulp
//   fast_rsqrt(x)       1/sqrt(x) within 2 ulp
//   opaque(x)           x, an int, of which the compiler knows nothing: what is computed from it in a
//                       loop stays there, instead of taking registers from before the loop on

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/math.h"
#else
#include "shale/kernels/simt/emu/math.h"
#endif
