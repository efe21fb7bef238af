#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale::models {

// Counters that forward of a step increments, such as tokens per expert. Each rank counts its own
// work. At the end of the step, TrainStep sums the counters over all ranks and then sets them to 0.
class StepTally {
 public:
  virtual ~StepTally() = default;
  // Returns the counters, i32 in device memory, to which forward adds.
  virtual const Tensor& counts() const = 0;
  // Called when counts() is the sum over all ranks, on all ranks. Launches the work that uses the
  // sum.
  virtual void summed() = 0;
};

}  // namespace shale::models
