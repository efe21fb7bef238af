#pragma once

#include "shale/kernels/slots.h"

namespace shale::test {

// While it exists, some kernels of emulated GPUs give wrong results: the first row is overwritten.
class WrongKernels {
 public:
  enum Which : unsigned {
    kHopperGemm = 1,
    kHopperAttention = 2,  // forward attention on Hopper, in 16 bits
    kEpilogues = 4,        // GEMMs with an epilogue, on every GPU
    kMul = 8,              // mul(), for which there is no other kernel
  };
  // `which` is a sum of Which values; the first and the third exclude each other.
  explicit WrongKernels(unsigned which);
  ~WrongKernels();                        // registers the right kernels again
  WrongKernels(const WrongKernels&) = delete;
  WrongKernels& operator=(const WrongKernels&) = delete;
};

}  // namespace shale::test
