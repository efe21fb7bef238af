#include "shale/kernels/cuda/conv/conv_cudnn.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/conv/conv_layout.h"
#include "shale/kernels/cuda/cudnn/conv_graph.h"
#include "shale/kernels/cuda/cudnn/library.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

using cudnn::ConvGraph;
using cudnn::ConvOp;

bool is_aligned(const View& view) {
  return reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0;
}

ConvGraph graph_of(ConvOp op, const View& x, const View& weight, const View& y,
                   const Windows& windows) {
  ConvGraph g;
  g.op = op, g.dtype = x.dtype;
  g.images = x.size(0), g.rows = x.size(1), g.cols = x.size(2), g.channels = x.size(3);
  g.out_rows = y.size(1), g.out_cols = y.size(2), g.outs = y.size(3);
  g.kernel_rows = weight.size(2), g.kernel_cols = weight.size(3);
  g.stride = windows.stride, g.padding = windows.padding;
  return g;
}

const cudnn::ConvPlan* plan_for(const char* op, const Exec& exec, const ConvGraph& graph,
                                bool aligned) {
  const cudnn::ConvPlan* plan = nullptr;
  if (aligned) plan = cudnn::conv_plan(exec.device.index, graph);
  if (plan == nullptr && cudnn::is_asked_for()) {
    throw UnavailableError(
        cat(op, ": cuDNN ", cudnn::version(), ", which SHALE_CUDNN requests, has no engine for ",
            dtype_name(graph.dtype), " [", graph.images, ",", graph.rows, ",", graph.cols, ",",
            graph.channels, "] to ", graph.outs, " channels that adds in f32 and is deterministic",
            aligned ? "" : ": images are not 16-byte aligned"));
  }
  return plan;
}

// Workspace of a call: the weights in cuDNN's layout, then the plan's own workspace.
struct Memory {
  Memory(const char* op, const Exec& exec, const cudnn::ConvPlan& plan, int64_t weight_bytes) {
    constexpr int64_t kPlanAlignment = 256;
    const int64_t before = round_up(weight_bytes, kPlanAlignment);
    weights = static_cast<char*>(scratch_bytes(op, exec, before + plan.workspace_bytes()));
    rest = plan.workspace_bytes() > 0 ? weights + before : nullptr;
  }
  char* weights;
  char* rest;
};

}  // namespace

bool conv_by_cudnn(const Exec& exec, const ConvArgs& a) {
  constexpr const char* kOp = "conv";
  ConvGraph graph = graph_of(ConvOp::kForward, a.x, a.weight, a.y, a.windows);
  graph.bias = a.bias.defined();
  const bool aligned = is_aligned(a.x) && is_aligned(a.y) && (!graph.bias || is_aligned(a.bias));
  const cudnn::ConvPlan* const plan = plan_for(kOp, exec, graph, aligned);
  if (plan == nullptr) return false;
  const Memory memory(kOp, exec, *plan, a.weight.bytes());
  pack_weights(exec, a.weight, PackedBy::kOut, graph.channels, memory.weights);
  plan->execute(exec.stream,
                {.x = a.x.data, .weights = memory.weights, .y = a.y.data, .bias = a.bias.data},
                memory.rest);
  return true;
}

bool conv_by_cudnn(const Exec& exec, const ConvInputGradArgs& a) {
  constexpr const char* kOp = "conv_input_grad";
  const ConvGraph graph = graph_of(ConvOp::kInputGrad, a.dx, a.weight, a.dy, a.windows);
  const cudnn::ConvPlan* const plan =
      plan_for(kOp, exec, graph, is_aligned(a.dx) && is_aligned(a.dy));
  if (plan == nullptr) return false;
  const Memory memory(kOp, exec, *plan, a.weight.bytes());
  pack_weights(exec, a.weight, PackedBy::kOut, graph.channels, memory.weights);
  plan->execute(exec.stream, {.x = a.dx.data, .weights = memory.weights, .y = a.dy.data},
                memory.rest);
  return true;
}

bool conv_by_cudnn(const Exec& exec, const ConvWeightGradArgs& a) {
  constexpr const char* kOp = "conv_weight_grad";
  const ConvGraph graph = graph_of(ConvOp::kWeightGrad, a.x, a.dweight, a.dy, a.windows);
  const cudnn::ConvPlan* const plan =
      plan_for(kOp, exec, graph, is_aligned(a.x) && is_aligned(a.dy));
  if (plan == nullptr) return false;
  const Memory memory(kOp, exec, *plan, a.dweight.numel() * int64_t{sizeof(float)});
  plan->execute(exec.stream, {.x = a.x.data, .weights = memory.weights, .y = a.dy.data},
                memory.rest);
  add_weight_parts(exec, reinterpret_cast<const float*>(memory.weights), 1, graph.channels,
                   a.dweight, a.accumulate);
  return true;
}

}  // namespace shale::kernels::SHALE_BACKEND
