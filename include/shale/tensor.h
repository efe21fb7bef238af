#pragma once

// Context (a device as one rank uses it), Tensor, copies from and to the host, captured graphs, and
// what a context's memory holds.

#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/graph.h"
#include "shale/runtime/tensor/memory.h"
#include "shale/runtime/tensor/out_of_memory.h"
#include "shale/runtime/tensor/tensor.h"
