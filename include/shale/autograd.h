#pragma once

// backward(), NoGrad, Inference; recording the backward of a custom op (record(), BackwardArgs,
// SavedTensor); activation recomputation.

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/autograd/tape.h"
