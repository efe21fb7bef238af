#pragma once

#include "shale/kernels/gemm.h"

namespace shale::kernels::cpu {

// Entry of the slot of the same name. c is cut into blocks that depend on shapes and dtypes only;
// each block is one single-threaded oneDNN product over the whole of K, followed by its epilogue
// while it is in cache. SwiGLU's two products come one after the other, the activation in the
// second's epilogue. f16, and bf16 on a CPU without bf16 products, are widened to f32 on the
// way.
//
// Workspace: per thread oneDNN's scratch and, with an epilogue, one block in f32.
// Throws ShapeError and DTypeError before anything is written.
void gemm(const Exec& exec, const GemmArgs& args);

}  // namespace shale::kernels::cpu
