#pragma once

// Context (a device as one rank uses it), Tensor, copies between host and device, memory of the
// program and DLPack, CUDA graphs, memory statistics of a context.

#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/dlpack.h"
#include "shale/runtime/tensor/foreign_memory.h"
#include "shale/runtime/tensor/graph.h"
#include "shale/runtime/tensor/memory.h"
#include "shale/runtime/tensor/out_of_memory.h"
#include "shale/runtime/tensor/tensor.h"
