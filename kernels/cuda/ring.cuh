#pragma once

#include <bit>

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Position in a ring of stages. It continues from one tile to the next.
template <int kStages>
struct RingPlace {
  int stage = 0, parity = 0;  // parity: number of rounds modulo 2
  __device__ __forceinline__ void next() {
    const unsigned following = static_cast<unsigned>(stage) + 1;
    // A power of two takes fewer instructions.
    if constexpr (std::has_single_bit(unsigned{kStages})) {
      parity ^= static_cast<int>(following / kStages);
      stage = static_cast<int>(following % kStages);
    } else {
      const bool wraps = following == kStages;
      parity ^= static_cast<int>(wraps);
      stage = wraps ? 0 : static_cast<int>(following);
    }
  }
  // Skips stages that another warpgroup uses.
  __device__ __forceinline__ void skip(int stages) {
    const int all = stage + stages;
    stage = all % kStages;
    parity ^= all / kStages % 2;
  }
};

}  // namespace shale::kernels::SHALE_BACKEND
