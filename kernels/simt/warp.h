#pragma once

// Shuffles and votes of a warp. `mask` names the lanes that take part: every one of them makes the
// same call with the same mask. Values of up to 8 bytes; T is float, double or an integer.
//
//   shfl(value, lane)          the value of `lane`
//   shfl_xor(value, bits)      of lane ^ bits
//   shfl_down(value, n)        of lane + n; the lane's own where that is above 31
//   shfl_up(value, n)          of lane - n; the lane's own where that is below 0
//   ballot(predicate)          a bit for each lane that said true
//   any(predicate), all(predicate)
//   uniform(x)                 x, an int that all lanes of the warp have the same: what follows from it,
//                              such as wgmma's descriptors, is computed once for the warp
//
// Shuffles and votes do not order memory: __syncwarp does.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/warp.h"
#else
#include "shale/kernels/simt/emu/warp.h"
#endif
