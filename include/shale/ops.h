#pragma once

// Differentiable functions of tensors, all in namespace shale; helpers for custom ops (as_matrix,
// emit_grad).

#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/batch_norm.h"
#include "shale/runtime/ops/block_mask.h"
#include "shale/runtime/ops/conv.h"
#include "shale/runtime/ops/create.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/grouped_swiglu.h"
#include "shale/runtime/ops/index.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/moe.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/rope.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/softmax.h"
#include "shale/runtime/ops/swiglu.h"
