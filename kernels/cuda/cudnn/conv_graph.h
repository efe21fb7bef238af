#pragma once

#include <compare>
#include <memory>

#include "shale/base/dtype.h"
#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::kernels::cudnn {

enum class ConvOp : uint8_t { kForward, kInputGrad, kWeightGrad };

// A convolution, or one of its gradients, and what is done on the way to memory. Images are dense
// [N, H, W, C], weights [O, kh, kw, C], all of `dtype` and 16-byte aligned; sums are made in f32.
// The gradient of the weights is in f32.
struct ConvGraph {
  ConvOp op = ConvOp::kForward;
  DType dtype = DType::kF32;
  int64_t images = 0, rows = 0, cols = 0, channels = 0;  // of x
  int64_t out_rows = 0, out_cols = 0, outs = 0;          // of y
  int64_t kernel_rows = 0, kernel_cols = 0;
  int64_t stride = 1, padding = 0;
  // Forward only: y = conv + bias, of y the positive part, and its statistics for batch norm.
  bool bias = false, relu = false, statistics = false;

  friend auto operator<=>(const ConvGraph&, const ConvGraph&) = default;
};

// x, weights and y, or their gradients where the op says so; those that the graph has.
struct ConvPointers {
  const void* x = nullptr;
  const void* weights = nullptr;
  const void* y = nullptr;
  const void* bias = nullptr;        // [O], of the graph's dtype
  const void* sum = nullptr;         // [O] f32: of y over all pixels,
  const void* square_sum = nullptr;  // and of its squares
};

// A graph with the engine that runs it.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Queues the work on `stream`, with workspace_bytes() of memory.
  virtual void execute(void* stream, const ConvPointers& pointers, void* workspace) const = 0;
};

// The plan for a graph on the device, made when it is first asked for; null where the library is
// not there or has no engine that keeps this project's promises: the same bits in every run,
// products of the operands as they are, summed in f32. The engine is the library's first guess
// among those, and never timed, since ranks must not choose differently. The device is the thread's
// current one. Throws InternalError where the library refuses a graph as wrong.
const ConvPlan* conv_plan(int device, const ConvGraph& graph);

}  // namespace shale::kernels::cudnn
