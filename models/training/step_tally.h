#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale::models {

// Counters of a step's forward passes, besides the losses. Each rank counts its own work; at the
// end of the step TrainStep sums the counters over all ranks and sets them to 0.
class StepTally {
 public:
  virtual ~StepTally() = default;
  // Returns the counters, i32 in device memory, to which forward adds.
  virtual const Tensor& counts() const = 0;
  // Called when counts() holds the sum over all ranks, equal on all of them; launches work that
  // uses it.
  virtual void summed() = 0;
};

}  // namespace shale::models
