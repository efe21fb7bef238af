#include "shale/base/error.h"
#include "shale/kernels/pointwise_formula.h"
#include "shale/runtime/ops/pointwise_internal.h"

namespace shale {
namespace {

using Formula = kernels::PointwiseFormula;
using kernels::PointwiseGraph;
using kernels::PointwiseOp;

// Terms from which a derivative is computed: the op's arguments, its result, and the gradient of
// its result.
struct Terms {
  Formula a, b, c, y, dy;
};

// Returns the fraction of the gradient that an argument of max or min gets: `chosen`, which is 0 or
// 1, and 1/2 where a and b are equal.
Formula share(const Formula& chosen, const Formula& a, const Formula& b) {
  return chosen + a.with(PointwiseOp::kEqual, b) * a.number(0.5f);
}

// Returns dy times the derivative of the op with respect to argument `arg`.
Formula derivative(PointwiseOp op, int arg, const Terms& t) {
  const auto& [a, b, c, y, dy] = t;
  const Formula zero = a.number(0), one = a.number(1);
  switch (op) {
    case PointwiseOp::kConvert:
    case PointwiseOp::kAdd: return dy;
    case PointwiseOp::kSub: return arg == 0 ? dy : -dy;
    case PointwiseOp::kMul: return arg == 0 ? dy * b : dy * a;
    case PointwiseOp::kDiv: return arg == 0 ? dy / b : -(dy * (a / b) / b);
    case PointwiseOp::kMaximum: return dy * (arg == 0 ? share(b < a, a, b) : share(a < b, a, b));
    case PointwiseOp::kMinimum: return dy * (arg == 0 ? share(a < b, a, b) : share(b < a, a, b));
    case PointwiseOp::kPow: return b.choose(dy * (b * a.with(PointwiseOp::kPow, b - one)), zero);
    case PointwiseOp::kNeg: return -dy;
    case PointwiseOp::kAbs: return dy * ((zero < a) - (a < zero));
    case PointwiseOp::kExp: return dy * y;
    case PointwiseOp::kLog: return dy / a;
    case PointwiseOp::kSqrt: return dy * a.number(0.5f) / y;
    case PointwiseOp::kRsqrt: return dy * (a.number(-0.5f) * y / a);
    case PointwiseOp::kRelu: return (zero < y).choose(dy, zero);
    case PointwiseOp::kSigmoid: return dy * (y * (one - y));
    case PointwiseOp::kTanh: return dy * (one - y * y);
    case PointwiseOp::kSilu: {
      const Formula s = a.of(PointwiseOp::kSigmoid);
      return dy * (s * (one + a * (one - s)));
    }
    case PointwiseOp::kSoftplus: return dy * a.of(PointwiseOp::kSigmoid);
    case PointwiseOp::kSin: return dy * a.of(PointwiseOp::kCos);
    case PointwiseOp::kCos: return -(dy * a.of(PointwiseOp::kSin));
    case PointwiseOp::kWhere: return arg == 1 ? a.choose(dy, zero) : a.choose(zero, dy);
    case PointwiseOp::kClamp: return ((b <= a) * (a <= c)).choose(dy, zero);
    default: throw InternalError(cat("pointwise: ", kernels::name_of(op), " has no derivative"));
  }
}

bool differentiable(PointwiseOp op, int arg) {
  switch (op) {
    case PointwiseOp::kLess:
    case PointwiseOp::kLessEqual:
    case PointwiseOp::kEqual: return false;
    case PointwiseOp::kWhere: return arg > 0;
    case PointwiseOp::kPow:
    // the other arguments are constants: the exponent, or low and high
    case PointwiseOp::kClamp: return arg == 0;
    default: return true;
  }
}

class ChainRule {
 public:
  ChainRule(const PointwiseChain& chain, const std::vector<GradientWish>& wishes)
      : chain_(chain), wishes_(wishes), graph_(chain.graph), count_(graph_.values().size()) {
    results_.resize(count_);
    grads_.assign(count_, -1);
    for (size_t v = 0; v < count_; ++v) results_[v] = int(v);
  }

  PointwiseGradient run() {
    if (chain_.saves_outputs) {
      for (const int y : chain_.outputs)
        results_[size_t(y)] = graph_.input(chain_.graph.at(y).dtype);
    }
    for (const int y : chain_.outputs) add(y, graph_.input(chain_.graph.at(y).dtype));
    find_needed();
    PointwiseGradient result;
    result.of_input.assign(size_t(chain_.graph.inputs()), -1);
    for (size_t v = count_; v-- > 0;) {
      const PointwiseGraph::Value value = chain_.graph.at(int(v));
      if (!needed_[v] || grads_[v] < 0) continue;
      if (value.op == PointwiseOp::kLoad) result.of_input[size_t(value.input)] = grads_[v];
      for (int i = 0; i < kernels::arity_of(value.op); ++i) {
        const int arg = value.args[size_t(i)];
        if (needed_[size_t(arg)] && differentiable(value.op, i)) deliver(int(v), i);
      }
    }
    result.graph = std::move(graph_);
    return result;
  }

 private:
  void find_needed() {
    needed_.assign(count_, false);
    for (size_t v = 0; v < count_; ++v) {
      const PointwiseGraph::Value& value = chain_.graph.at(int(v));
      if (value.op == PointwiseOp::kLoad) needed_[v] = wishes_[size_t(value.input)].wanted;
      for (int i = 0; i < kernels::arity_of(value.op); ++i) {
        if (needed_[size_t(value.args[size_t(i)])] && differentiable(value.op, i))
          needed_[v] = true;
      }
    }
  }

  DType grad_dtype(int value) const {
    const PointwiseGraph::Value& of = chain_.graph.at(value);
    return of.op == PointwiseOp::kLoad ? wishes_[size_t(of.input)].dtype : of.dtype;
  }

  void deliver(int v, int i) {
    const PointwiseGraph::Value value = chain_.graph.at(v);
    const auto arg = [&](int k) {
      return Formula(graph_, results_[size_t(value.args[size_t(k)])]);
    };
    const int arity = kernels::arity_of(value.op);
    const Terms terms{.a = arg(0),
                      .b = arg(arity > 1 ? 1 : 0),
                      .c = arg(arity > 2 ? 2 : 0),
                      .y = Formula(graph_, results_[size_t(v)]),
                      .dy = Formula(graph_, grads_[size_t(v)])};
    add(value.args[size_t(i)], derivative(value.op, i, terms).value());
  }

  // Rounds a gradient of a value and adds it to the value's earlier gradients.
  void add(int value, int grad) {
    const DType dtype = grad_dtype(value);
    if (dtype != DType::kF32 && graph_.at(grad).dtype != dtype) {
      grad = graph_.apply(PointwiseOp::kConvert, dtype, {grad});
    }
    int& slot = grads_[size_t(value)];
    slot = slot < 0 ? grad : graph_.apply(PointwiseOp::kAdd, dtype, {slot, grad});
  }

  const PointwiseChain& chain_;
  const std::vector<GradientWish>& wishes_;
  PointwiseGraph graph_;
  size_t count_;              // number of forward values
  std::vector<int> results_;  // for each forward value: the value, or its saved result
  std::vector<int> grads_;
  // for each forward value: true if it depends on an input that needs a gradient
  std::vector<bool> needed_;
};

}  // namespace

PointwiseGradient gradient_of(const PointwiseChain& chain,
                              const std::vector<GradientWish>& inputs) {
  return ChainRule(chain, inputs).run();
}

}  // namespace shale
