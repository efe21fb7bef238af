#pragma once

// Shuffles and votes of a warp. `mask` names the lanes that take part: all of them must make the
// same call with the same mask. Values have up to 8 bytes; T is float, double or an integer.
//
//   shfl(value, lane)          the value of `lane`
//   shfl_xor(value, bits)      the value of lane ^ bits
//   shfl_down(value, n)        the value of lane + n; the lane's own if that is above 31
//   shfl_up(value, n)          the value of lane - n; the lane's own if that is below 0
//   ballot(predicate)          a bit for each lane whose predicate is true
//   any(predicate), all(predicate)
//   uniform(x)                 returns x, an int that is equal in all lanes of the warp:
//                              values derived from it, such as wgmma's descriptors, are computed
//                              once per warp
//
// Shuffles and votes do not order memory accesses; __syncwarp does.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/warp.h"
#else
#include "shale/kernels/simt/emu/warp.h"
#endif
