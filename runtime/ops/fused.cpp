#include "shale/runtime/ops/fused.h"

#include "shale/base/error.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale {
namespace {

// Scope in which elementwise ops of the context add themselves to the trace instead of running.
class ChainScope {
 public:
  ChainScope(AutogradState& state, PointwiseTrace& trace) : state_(state) { state_.trace = &trace; }
  ~ChainScope() { state_.trace = nullptr; }
  ChainScope(const ChainScope&) = delete;
  ChainScope& operator=(const ChainScope&) = delete;

 private:
  AutogradState& state_;
};

}  // namespace

std::vector<Tensor> fused(const FusedFn& fn, const std::vector<Tensor>& inputs) {
  if (inputs.empty()) throw ShapeError("fused: there are no inputs, expected at least one");
  check_defined("fused", "the first input", inputs.front());
  Context& context = inputs.front().context();
  // Inside another fused(), the ops become part of the outer chain. With an op recorder, the ops
  // run one by one, so that each reports itself.
  const AutogradState& state = context.autograd();
  if (state.trace != nullptr || state.recorder != nullptr) return fn(inputs);
  PointwiseTrace trace(context);
  std::vector<Tensor> results;
  {
    const ChainScope scope(context.autograd(), trace);
    results = fn(inputs);
  }
  if (results.empty())
    throw AutogradError("fused: the function returned no tensor, expected at least one");
  return run_chain(trace.chain(results));
}

Tensor fused(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  return fused([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{fn(in[0])}; },
               {x})[0];
}

}  // namespace shale
