#include "shale/runtime/ops/loss.h"

#include <algorithm>

#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/shape.h"

namespace shale {
namespace {

void check_targets(const Tensor& targets, int64_t rows, int64_t vocab, int64_t columns) {
  check_shape("cross_entropy", "targets", targets, {rows});
  check_dtype("cross_entropy", "targets", targets, DType::kI32);
  if (vocab < 1 || vocab > columns) {
    throw ShapeError(cat("cross_entropy: vocab is ", vocab, ", expected 1 to ", columns,
                         ", the columns of the logits"));
  }
}

Tensor sum_of(const Tensor& losses) {
  Tensor total = empty(losses.context(), {}, DType::kF32);
  kernels::sum(losses.exec(), {.x = losses, .y = total});
  return total;
}

// View of rows [begin, end) of x.
Tensor rows_of(const Tensor& x, int64_t begin, int64_t end) {
  Shape shape = x.shape();
  shape[0] = end - begin;
  return x.alias(shape, x.strides(), begin * x.strides()[0]);
}

// Multiplies x in place by a scalar on the device. An undefined factor means 1.
void scale_by(const Tensor& factor, const Tensor& x) {
  if (factor.defined()) kernels::mul(x.exec(), {.a = x, .b = factor, .y = x});
}

struct ChunkedLoss {
  struct Inputs {
    Tensor x, weight, targets;
    StepHold step;  // per-step values of the forward pass
  };

  int64_t vocab;
  int64_t chunk_rows;
  float softcap;

  // Calls body(begin, end, logits) with the logits of each chunk.
  template <typename Body>
  void for_chunks(const Tensor& x, const Tensor& weight, Body body) const {
    const int64_t rows = x.size(0);
    const int64_t largest = std::min(chunk_rows, rows);
    const Tensor buffer = empty(x.context(), {largest, weight.size(0)}, x.dtype());
    for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
      const int64_t end = std::min(rows, begin + chunk_rows);
      const Tensor logits = rows_of(buffer, 0, end - begin);
      kernels::gemm(x.exec(), {.a = rows_of(x, begin, end), .b = transposed(weight), .c = logits});
      body(begin, end, logits);
    }
  }

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& targets) const {
    const Tensor losses = empty(x.context(), {x.size(0)}, DType::kF32);
    for_chunks(x, weight, [&](int64_t begin, int64_t end, const Tensor& logits) {
      kernels::cross_entropy(x.exec(), {.logits = logits,
                                        .targets = rows_of(targets, begin, end),
                                        .losses = rows_of(losses, begin, end),
                                        .vocab = vocab,
                                        .write_grad = false,
                                        .softcap = softcap});
    });
    return sum_of(losses);
  }

  // Tensors to which gradients are written. A tensor is undefined if its gradient is not needed.
  struct Wanted {
    Tensor dx, dw;
    bool accumulate = false;  // true: adds to dw; false: overwrites dw
  };

  // Computes the gradients of x and the weight, times `factor`, a scalar on the device. An
  // undefined factor means 1.
  void gradients(const Inputs& of, const Tensor& factor, Wanted wanted) const {
    const auto& [x, weight, targets, step] = of;
    const Tensor losses = empty(x.context(), {x.size(0)}, DType::kF32);
    // If x has no rows, no chunk writes dw.
    if (x.size(0) == 0 && wanted.dw.defined() && !wanted.accumulate) {
      kernels::fill(x.exec(), {.y = wanted.dw, .value = 0});
    }
    for_chunks(x, weight, [&](int64_t begin, int64_t end, const Tensor& logits) {
      kernels::cross_entropy(step.exec(x), {.logits = logits,
                                            .targets = rows_of(targets, begin, end),
                                            .losses = rows_of(losses, begin, end),
                                            .vocab = vocab,
                                            .softcap = softcap});
      scale_by(factor, logits);
      if (wanted.dx.defined()) {
        kernels::gemm(x.exec(), {.a = logits, .b = weight, .c = rows_of(wanted.dx, begin, end)});
      }
      if (wanted.dw.defined()) {
        kernels::gemm(x.exec(), {.a = transposed(logits),
                                 .b = rows_of(x, begin, end),
                                 .c = wanted.dw,
                                 .accumulate = wanted.accumulate});
        wanted.accumulate = true;
      }
    });
  }

  Grads backward(BackwardArgs& args, const Inputs& of) const {
    Grads grads(2);
    const Tensor factor = multiple_of_seed(args);
    Wanted wanted;
    if (args.needs(0)) wanted.dx = grads[0] = empty_like(of.x);
    if (args.deferred() != nullptr && args.leaf(1).defined()) {
      defer(*args.deferred(), args.leaf(1), of, factor);
    } else {
      emit_grad(args, {1, of.weight, of.x.dtype()}, grads, [&](const Tensor& to, bool add) {
        wanted.dw = to;
        wanted.accumulate = add;
      });
    }
    gradients(of, factor, wanted);
    return grads;
  }

  // Defers the weight's gradient. It recomputes the logits, which are not kept.
  void defer(DeferredGrads& rest, const Tensor& leaf, const Inputs& of,
             const Tensor& factor) const {
    rest.add({leaf}, [loss = *this, leaf, of, factor] {
      if (const auto to = claim_leaf_grad(leaf, of.x.dtype())) {
        return loss.gradients(of, factor, {.dx = {}, .dw = to->grad, .accumulate = to->accumulate});
      }
      const Tensor grad = empty(leaf.context(), leaf.shape(), DType::kF32, MemoryTag::kGradient);
      loss.gradients(of, factor, {.dx = {}, .dw = grad});
      add_leaf_grad(leaf, grad);
    });
  }
};

}  // namespace

namespace {

// Number of logit columns that are classes, and the softcap of the logits.
struct Vocabulary {
  int64_t tokens = 0;
  float softcap = 0;
};

// Returns the loss, and replaces the logits in `gradient` by their gradient. `gradient` is `logits`
// itself or a copy of it.
Tensor cross_entropy_into(const Tensor& gradient, const Tensor& logits, const Tensor& targets,
                          const Vocabulary& vocab, bool wants_grad) {
  const View matrix = as_matrix(gradient);
  check_targets(targets, matrix.rows(), vocab.tokens, matrix.cols());
  const Tensor losses = empty(logits.context(), {matrix.rows()}, DType::kF32);
  kernels::cross_entropy(logits.exec(), {.logits = matrix,
                                         .targets = targets,
                                         .losses = losses,
                                         .vocab = vocab.tokens,
                                         .write_grad = wants_grad,
                                         .softcap = vocab.softcap});
  Tensor total = sum_of(losses);
  if (!wants_grad) return total;
  gradient.bump_version();  // `gradient` now contains the gradient instead of the logits
  record("cross_entropy", {logits}, {&total},
         [gradient = SavedTensor("cross_entropy", gradient)](BackwardArgs& args) {
           const Tensor factor = multiple_of_seed(args), dlogits = gradient.get();
           if (factor.defined() && args.retains()) return Grads{mul(dlogits, factor)};
           scale_by(factor, dlogits);
           return Grads{dlogits};
         });
  return total;
}

}  // namespace

Tensor cross_entropy_(Tensor& logits, const Tensor& targets, int64_t vocab, float softcap) {
  check_contiguous("cross_entropy_", "logits", logits);
  const bool wants_grad = needs_grad(logits.context(), {logits});
  if (wants_grad) check_in_place("cross_entropy_", logits);
  return cross_entropy_into(logits, logits, targets, {vocab, softcap}, wants_grad);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t vocab, float softcap) {
  const Vocabulary columns = {vocab, softcap};
  check_contiguous("cross_entropy", "logits", logits);
  const bool wants_grad = needs_grad(logits.context(), {logits});
  if (!wants_grad) return cross_entropy_into(logits, logits, targets, columns, false);
  const Tensor gradient = empty_like(logits);
  kernels::axpby(logits.exec(), {.a = logits, .y = gradient});
  return cross_entropy_into(gradient, logits, targets, columns, true);
}

Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                 int64_t vocab, float softcap) {
  if (amp::wants_low({x, weight})) {
    return linear_cross_entropy_rows(amp::to_low(x), amp::to_low(weight), targets, vocab, softcap);
  }
  const char* op = "linear_cross_entropy_rows";
  const Tensor logits = linear(x, weight);
  const View matrix = as_matrix(logits);
  check_targets(targets, matrix.rows(), vocab, matrix.cols());
  const bool wants_grad = needs_grad(logits.context(), {logits});
  Tensor losses = empty(logits.context(), {matrix.rows()}, DType::kF32);
  kernels::cross_entropy(logits.exec(), {.logits = matrix,
                                         .targets = targets,
                                         .losses = losses,
                                         .vocab = vocab,
                                         .write_grad = wants_grad,
                                         .softcap = softcap});
  if (!wants_grad) return losses;
  logits.bump_version();  // `logits` now contains the gradient
  record(op, {logits}, {&losses}, [gradient = SavedTensor(op, logits)](BackwardArgs& args) {
    const Tensor of_rows = gradient.get();
    const Tensor factors = multiple_of_seed(args);
    return Grads{factors.defined() ? mul(of_rows, reshape(factors, {of_rows.size(0), 1}))
                                   : of_rows};
  });
  return losses;
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t vocab, const ClassifierLossOptions& options) {
  if (amp::wants_low({x, weight})) {
    return linear_cross_entropy(amp::to_low(x), amp::to_low(weight), targets, vocab, options);
  }
  if (options.chunk_rows <= 0) {
    Tensor logits = linear(x, weight);
    return cross_entropy_(logits, targets, vocab, options.softcap);
  }
  const char* op = "linear_cross_entropy";
  check_contiguous(op, "x", x);
  check_shape(op, "weight", weight, {weight.size(0), x.size(-1)});
  check_targets(targets, as_matrix(x).rows(), vocab, weight.size(0));
  const ChunkedLoss loss{vocab, options.chunk_rows, options.softcap};
  Tensor total = loss.forward(x, weight, targets);
  if (!needs_grad(x.context(), {x, weight})) return total;
  record(
      op, {x, weight}, {&total},
      [x = SavedTensor(op, x), weight = SavedTensor(op, weight), targets = SavedTensor(op, targets),
       loss, step = StepHold(x.context())](BackwardArgs& args) {
        return loss.backward(args, {x.get(), weight.get(), targets.get(), step});
      });
  return total;
}

}  // namespace shale
