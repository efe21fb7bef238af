#pragma once

// Context (a device as one rank uses it), Tensor, copies from and to the host, captured graphs.

#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/graph.h"
#include "shale/runtime/tensor/tensor.h"
