#pragma once

#include <compare>
#include <memory>

#include "shale/base/dtype.h"
#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::kernels::cudnn {

enum class ConvOp : uint8_t { kForward, kInputGrad, kWeightGrad };

// A convolution, or one of its gradients, with fused operations. Images are dense [N, H, W, C],
// weights [O, kh, kw, C], all of `dtype` and 16-byte aligned; sums are computed in f32. Weight
// gradients are f32.
struct ConvGraph {
  ConvOp op = ConvOp::kForward;
  DType dtype = DType::kF32;
  int64_t images = 0, rows = 0, cols = 0, channels = 0;  // size of x
  int64_t out_rows = 0, out_cols = 0, outs = 0;          // size of y
  int64_t kernel_rows = 0, kernel_cols = 0;
  int64_t stride = 1, padding = 0;
  // Forward only: y = relu(conv + bias), and the sums over y that batch norm needs.
  bool bias = false, relu = false, statistics = false;

  friend auto operator<=>(const ConvGraph&, const ConvGraph&) = default;
};

// Pointers to x, weights and y, or their gradients, depending on the op; null if the graph does not
// have them.
struct ConvPointers {
  const void* x = nullptr;
  const void* weights = nullptr;
  const void* y = nullptr;
  const void* bias = nullptr;        // [O], in the graph's dtype
  const void* sum = nullptr;         // [O] f32: sum of y over all pixels
  const void* square_sum = nullptr;  // [O] f32: sum of the squares of y
};

// A graph and the engine that runs it.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Queues the work on `stream`. `workspace` has workspace_bytes() bytes.
  virtual void execute(void* stream, const ConvPointers& pointers, void* workspace) const = 0;
};

// Returns the plan for a graph on the device. The plan is made at first use. Returns null if cuDNN
// is missing or has no engine that keeps this project's guarantees: the same bits in every run, and
// unrounded operands, summed in f32. Among those engines, the library's first heuristic choice is
// used. Engines are never timed, because ranks must not choose differently. The device is the
// thread's current one. Throws InternalError if the library rejects a graph as invalid.
const ConvPlan* conv_plan(int device, const ConvGraph& graph);

}  // namespace shale::kernels::cudnn
