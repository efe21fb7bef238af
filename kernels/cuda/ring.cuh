#pragma once

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// The stages of a ring go round, on from one tile to the next.
template <int kStages>
struct RingPlace {
  int stage = 0, parity = 0;  // of the number of times round
  __device__ __forceinline__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  // Past stages that somebody else uses.
  __device__ __forceinline__ void skip(int stages) {
    const int all = stage + stages;
    stage = all % kStages;
    parity ^= all / kStages % 2;
  }
};

}  // namespace shale::kernels::SHALE_BACKEND
