#pragma once

#include "shale/kernels/slots.h"

namespace shale::test {

// Makes the first row of the results of some kernels of the emulated GPUs wrong while it exists.
class WrongKernels {
 public:
  enum Which : unsigned {
    kHopperGemm = 1,
    kHopperAttention = 2,  // forward, in 16 bits
    kEpilogues = 4,        // GEMMs with an epilogue, on every GPU
    kMul = 8,              // which has no substitute
  };
  explicit WrongKernels(unsigned which);  // a sum of Which; the first and third exclude each other
  ~WrongKernels();                        // registers the right kernels again
  WrongKernels(const WrongKernels&) = delete;
  WrongKernels& operator=(const WrongKernels&) = delete;
};

}  // namespace shale::test
