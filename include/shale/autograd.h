#pragma once

// backward(), NoGrad, Inference; what an op of one's own records its backward with (record(),
// BackwardArgs, SavedTensor); recomputation.

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/autograd/tape.h"
