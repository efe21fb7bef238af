#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale::models {

// What the forward passes of a step count, besides their losses, each thing on one rank. TrainStep
// adds it up over all ranks at the end of the step and sets it to 0.
class StepTally {
 public:
  virtual ~StepTally() = default;
  // Counters in device memory, i32, which forward adds to.
  virtual const Tensor& counts() const = 0;
  // counts() are those of all ranks now, the same on all of them; queues what follows from them.
  virtual void summed() = 0;
};

}  // namespace shale::models
