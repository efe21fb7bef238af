#include "shale/runtime/ops/elementwise.h"

#include <algorithm>

#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

void check_alike(const char* op, const Tensor& a, const Tensor& b) {
  check_contiguous(op, "a", a);
  check_contiguous(op, "b", b);
  check_shape(op, "b", b, a.shape());
  check_same_device(op, a, {&b, 1});
}

// True if a and b are whole tensors of one shape and the op is outside fused(). This case has its
// own kernels, with bitwise the same results as the general ones.
bool is_plain(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, "a", a);
  check_defined(op, "b", b);
  check_same_device(op, a, {&b, 1});
  return a.context().autograd().trace == nullptr && a.shape() == b.shape() && a.contiguous() &&
         b.contiguous() && a.dtype() != DType::kU8 && b.dtype() != DType::kU8;
}

bool is_traced(const Tensor& x) {
  return x.context().autograd().trace != nullptr;
}

// True if elementwise kernels support the dtype.
bool computes_in(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Converts a gradient to the dtype of its input.
Tensor like_input(const Tensor& grad, DType dtype) {
  if (grad.dtype() == dtype) return grad;
  Tensor y = empty(grad.context(), grad.shape(), dtype);
  kernels::axpby(grad.exec(), {.a = grad, .y = y});
  return y;
}

Tensor scaled(const Tensor& x, float factor, DType dtype) {
  Tensor y = empty(x.context(), x.shape(), dtype);
  kernels::axpby(x.exec(), {.a = x, .y = y, .alpha = factor});
  return y;
}

BackwardFn add_backward(const Tensor& a, const Tensor& b) {
  return [a = a.dtype(), b = b.dtype()](BackwardArgs& args) {
    return Grads{like_input(args.dy(), a), like_input(args.dy(), b)};
  };
}

BackwardFn scale_backward(float factor, DType dtype) {
  return [factor, dtype](BackwardArgs& args) { return Grads{scaled(args.dy(), factor, dtype)}; };
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (!is_plain("add", a, b)) {
    return pointwise(kernels::PointwiseOp::kAdd, amp::result_dtype(a, b), {a, b});
  }
  Tensor y = empty(a.context(), a.shape(), amp::result_dtype(a, b));
  kernels::axpby(a.exec(), {.a = a, .b = b, .y = y});
  if (OpRecorder* to = recorder_of(y)) to->add("add", {a, b}, {y});
  record("add", {a, b}, {&y}, add_backward(a, b));
  return y;
}

void add_(Tensor& a, const Tensor& b) {
  check_in_place("add_", a);
  check_alike("add_", a, b);
  kernels::axpby(a.exec(), {.a = a, .b = b, .y = a});
  a.bump_version();
  record("add_", {a, b}, {&a}, add_backward(a, b));
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (!is_plain("mul", a, b)) {
    return pointwise(kernels::PointwiseOp::kMul, amp::result_dtype(a, b), {a, b});
  }
  Tensor y = empty(a.context(), a.shape(), amp::result_dtype(a, b));
  kernels::mul(a.exec(), {.a = a, .b = b, .y = y});
  if (OpRecorder* to = recorder_of(y)) to->add("mul", {a, b}, {y});
  if (!needs_grad(a.context(), {a, b})) return y;
  record("mul", {a, b}, {&y},
         [a = SavedTensor("mul", a), b = SavedTensor("mul", b)](BackwardArgs& args) {
           Grads grads(2);
           const auto product = [&](int input, const Tensor& like, const Tensor& other) {
             if (!args.needs(input)) return;
             Tensor grad = empty_like(like);
             kernels::mul(grad.exec(), {.a = args.dy(), .b = other, .y = grad});
             grads[static_cast<size_t>(input)] = grad;
           };
           const Tensor first = a.get(), second = b.get();
           product(0, first, second);
           product(1, second, first);
           return grads;
         });
  return y;
}

Tensor scale(const Tensor& x, float factor) {
  check_defined("scale", "x", x);
  if (is_traced(x) || x.dtype() == DType::kU8) return mul(x, factor);
  check_contiguous("scale", "x", x);
  Tensor y = scaled(x, factor, x.dtype());
  if (OpRecorder* to = recorder_of(y)) to->add("scale", {x, factor}, {y});
  record("scale", {x}, {&y}, scale_backward(factor, x.dtype()));
  return y;
}

void scale_(Tensor& x, float factor) {
  check_in_place("scale_", x);
  kernels::axpby(x.exec(), {.a = x, .y = x, .alpha = factor});
  x.bump_version();
  record("scale_", {x}, {&x}, scale_backward(factor, x.dtype()));
}

Tensor gelu(const Tensor& x, Gelu kind) {
  check_contiguous("gelu", "x", x);
  const bool exact = kind == Gelu::kErf;
  Tensor y = empty_like(x);
  kernels::gelu_fwd(x.exec(), {.x = x, .y = y, .exact = exact});
  if (OpRecorder* to = recorder_of(y)) to->add("gelu", {x}, {y}, {{"exact", exact}});
  if (!needs_grad(x.context(), {x})) return y;
  const SavedTensor saved("gelu", x);
  if (wants_recipes(x.context())) {
    set_recipe(y, [x = saved, exact] {
      const Tensor input = x.get();
      Tensor again = empty_like(input);
      kernels::gelu_fwd(input.exec(), {.x = input, .y = again, .exact = exact});
      return again;
    });
  }
  record("gelu", {x}, {&y}, [x = saved, exact](BackwardArgs& args) {
    const Tensor input = x.get();
    Tensor dx = empty_like(input);
    kernels::gelu_bwd(dx.exec(), {.x = input, .dy = args.dy(), .dx = dx, .exact = exact});
    return Grads{dx};
  });
  return y;
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", "x", x);
  if (x.dtype() == dtype) return x;
  const bool computes = computes_in(x.dtype()) && computes_in(dtype);
  if (is_traced(x) || (x.dtype() == DType::kU8 && computes_in(dtype))) {
    return pointwise(kernels::PointwiseOp::kConvert, dtype, {x});
  }
  check_contiguous("cast", "x", x);
  Tensor y = computes ? scaled(x, 1, dtype) : empty(x.context(), x.shape(), dtype);
  if (!computes) kernels::copy(x.exec(), {.x = x, .y = y});
  if (OpRecorder* to = recorder_of(y)) to->add("cast", {x}, {y});
  if (!is_float(x.dtype()) || !is_float(dtype)) return y;
  // The gradient of an f64 tensor is f32.
  const DType back = x.dtype() == DType::kF64 ? DType::kF32 : x.dtype();
  record("cast", {x}, {&y},
         [back](BackwardArgs& args) { return Grads{like_input(args.dy(), back)}; });
  return y;
}

namespace {

void run_dropout(const Exec& exec, const kernels::DropoutArgs& all,
                 const std::vector<DropoutPlace>& places) {
  if (places.empty()) return kernels::dropout(exec, all);
  int64_t begin = 0;
  for (const auto& [first, sample_elements, elements] : places) {
    kernels::DropoutArgs run = all;
    run.x = all.x.flat(begin, elements);
    if (all.residual.defined()) run.residual = all.residual.flat(begin, elements);
    run.y = all.y.flat(begin, elements);
    run.first = first;
    run.sample_elements = sample_elements;
    kernels::dropout(exec, run);
    begin += elements;
  }
  if (begin == all.x.numel()) return;
  throw ShapeError(
      cat("dropout: `places` has ", begin, " elements, expected as many as x, ", all.x));
}

}  // namespace

Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual,
               const std::vector<DropoutPlace>& places) {
  check_contiguous("dropout", "x", x);
  if (!(p >= 0 && p < 1)) throw ShapeError(cat("dropout: p is ", p, ", expected 0 <= p < 1"));
  if (residual.defined() && amp::result_dtype(x, residual) != x.dtype()) {
    return add(dropout(x, p, site, {}, places), residual);
  }
  if (residual.defined()) {
    check_shape("dropout", "residual", residual, x.shape());
    check_contiguous("dropout", "residual", residual);
  }
  Tensor y = empty_like(x);
  AutogradState& state = x.context().autograd();
  state.seen_samples = std::max(state.seen_samples, x.ndim() > 0 ? x.size(0) : 1);
  run_dropout(x.exec(),
              {.x = x,
               .residual = residual.defined() ? residual.view() : View{},
               .y = y,
               .p = p,
               .site = site},
              places);
  record("dropout", {x, residual}, {&y},
         [p, site, places, step = StepHold(x.context())](BackwardArgs& args) {
           Grads grads(2);
           if (args.needs(0)) {
             grads[0] = empty_like(args.dy());
             run_dropout(step.exec(args.dy()),
                         {.x = args.dy(), .y = grads[0], .p = p, .site = site}, places);
           }
           if (args.needs(1)) grads[1] = args.dy();
           return grads;
         });
  return y;
}

}  // namespace shale
