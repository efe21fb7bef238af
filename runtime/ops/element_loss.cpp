#include <functional>

#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/ops/reduce.h"

namespace shale {
namespace {

using kernels::PointwiseGraph;
using kernels::PointwiseOp;

// Adds the nodes of a loss to the graph. x and target are the numbers of graph values. Returns the
// number of the loss.
using LossFormula = std::function<int(PointwiseGraph& graph, int x, int target)>;

Tensor element_loss(const char* op, const Tensor& x, const Tensor& target, LossReduction reduction,
                    const LossFormula& formula) {
  check_defined(op, "x", x);
  check_shape(op, "target", target, x.shape());
  PointwiseChain chain{.name = op, .shape = x.shape()};
  chain.inputs = {x, target};
  const int of_x = chain.graph.input(x.dtype()), of_target = chain.graph.input(target.dtype());
  chain.outputs = {formula(chain.graph, of_x, of_target)};
  const Tensor losses = run_chain(std::move(chain))[0];
  if (OpRecorder* to = recorder_of(losses)) to->check(op, {x, target}, {losses});
  return reduction == LossReduction::kMean ? mean(losses) : sum(losses);
}

int apply(PointwiseGraph& graph, PointwiseOp op, std::initializer_list<int> args) {
  return graph.apply(op, DType::kF32, args);
}

}  // namespace

Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& softening) {
  const Tensor difference =
      element_loss("soft_cross_entropy", logits, softening, LossReduction::kSum,
                   [](PointwiseGraph& g, int of_x, int t) {
                     return apply(g, PointwiseOp::kMul, {of_x, t});
                   });
  return add(cross_entropy(logits, targets, logits.size(1)), difference);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return element_loss("mse_loss", x, target, reduction, [](PointwiseGraph& g, int of_x, int t) {
    const int difference = apply(g, PointwiseOp::kSub, {of_x, t});
    return apply(g, PointwiseOp::kMul, {difference, difference});
  });
}

Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return element_loss(
      "bce_with_logits_loss", x, target, reduction, [](PointwiseGraph& g, int of_x, int t) {
        const int product = apply(g, PointwiseOp::kMul, {t, of_x});
        return apply(g, PointwiseOp::kSub, {apply(g, PointwiseOp::kSoftplus, {of_x}), product});
      });
}

Tensor bce_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return element_loss("bce_loss", x, target, reduction, [](PointwiseGraph& g, int of_x, int t) {
    const int one = g.constant(1), smallest = g.constant(0x1p-100f);
    const auto log_of = [&](int p) {
      return apply(g, PointwiseOp::kLog, {apply(g, PointwiseOp::kMaximum, {p, smallest})});
    };
    const int yes = apply(g, PointwiseOp::kMul, {t, log_of(of_x)});
    const int rest = apply(g, PointwiseOp::kSub, {one, t});
    const int no =
        apply(g, PointwiseOp::kMul, {rest, log_of(apply(g, PointwiseOp::kSub, {one, of_x}))});
    return apply(g, PointwiseOp::kNeg, {apply(g, PointwiseOp::kAdd, {yes, no})});
  });
}

}  // namespace shale
