#include "shale/runtime/ops/index.h"

#include "shale/kernels/elementwise.h"
#include "shale/kernels/index.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/create.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

// Returns a contiguous tensor as a view [outer, size of the dimension, inner].
View as_lines(const Tensor& x, int dim) {
  View view = x.view();
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d < dim) outer *= x.size(d);
    if (d > dim) inner *= x.size(d);
  }
  return make_view(view.data, view.dtype, {outer, x.size(dim), inner});
}

// An indexing op: its arguments, with shapes as kernels expect them, and calls of its kernels.
struct Lines {
  const char* op;
  int dim;
  Shape shape;   // shape of x
  // [shape of x, with another size along dim], or [K] to use the same indices everywhere
  Tensor index;

  Shape picked() const {
    Shape result = shape;
    result[dim] = is_list() ? index.numel() : index.size(dim);
    return result;
  }
  Lines without_index() const { return {.op = op, .dim = dim, .shape = shape, .index = {}}; }
  Lines with(const Tensor& saved) const {
    return {.op = op, .dim = dim, .shape = shape, .index = saved};
  }
  bool is_list() const { return index.ndim() == 1 && shape.ndim() != 1; }

  View index_view(const View& like) const {
    if (!is_list()) return as_lines(index, dim);
    View view = index.view();
    view.shape = like.shape, view.strides = {0, 1, 0};
    return view;
  }

  Tensor gather_from(const Tensor& x) const {
    Tensor y = empty(x.context(), picked(), x.dtype());
    const View to = as_lines(y, dim);
    kernels::gather(x.exec(), {.x = as_lines(x, dim), .index = index_view(to), .y = to});
    return y;
  }
  // Adds elements of `source` to elements of y, which must be f32; if `replace`, overwrites them.
  void scatter_to(const Tensor& y, const Tensor& source, bool replace = false) const {
    const View from = as_lines(source, dim);
    kernels::scatter_add(
        y.exec(),
        {.x = from, .index = index_view(from), .y = as_lines(y, dim), .replace = replace});
  }
  // Returns a copy of x to which elements of `source` are added; if `replace`, which they
  // overwrite.
  Tensor scattered(const Tensor& x, const Tensor& source, bool replace) const {
    const NoGrad no_grad(x.context());
    const Tensor from = contiguous(x);
    Tensor y = empty(x.context(), x.shape(), DType::kF32);
    kernels::axpby(x.exec(), {.a = from, .y = y});
    scatter_to(y, contiguous(source), replace);
    return cast(y, x.dtype());
  }
  // Returns 1 for each element of `index` that is the last one with its value along dim, else 0, as
  // f32.
  Tensor last_uses() const {
    Shape ks = shape;
    for (int d = 0; d < ks.ndim(); ++d) ks[d] = d == dim ? index.size(d) : 1;
    const Tensor k =
        reshape(arange(index.context(), 0, double(index.size(dim)), 1, DType::kF32), ks);
    const Tensor numbers = k + zeros(index.context(), index.shape(), DType::kF32);
    const Tensor last = zeros(index.context(), shape, DType::kF32);
    scatter_to(last, numbers, true);
    return cast(gather_from(last) == numbers, DType::kF32);
  }
};

// Checks that index has the shape of x; only its size along dim may differ.
void check_index(const char* op, const Tensor& x, int dim, const Tensor& index) {
  check_dtype(op, "index", index, DType::kI32);
  check_contiguous(op, "index", index);
  Shape want = x.shape();
  if (index.ndim() == x.ndim()) want[dim] = index.size(dim);
  check_shape(op, "index", index, want);
}

Tensor gather_lines(const Tensor& x, const Lines& lines) {
  Tensor y = lines.gather_from(x);
  if (OpRecorder* to = recorder_of(y))
    to->add(lines.op, {x, lines.index}, {y}, {{"dim", lines.dim}});
  if (!needs_grad(x.context(), {x})) return y;
  record(lines.op, {x}, {&y},
         [lines = lines.without_index(),
          index = SavedTensor(lines.op, lines.index)](BackwardArgs& args) {
           Tensor dx = zeros(args.dy().context(), lines.shape, DType::kF32);
           lines.with(index.get()).scatter_to(dx, contiguous(args.dy()));
           return Grads{cast(dx, args.dy().dtype())};
         });
  return y;
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  const char* op = "gather";
  const int at = dim_index(op, x, dim);
  check_index(op, x, at, index);
  return gather_lines(contiguous(x), {.op = op, .dim = at, .shape = x.shape(), .index = index});
}

Tensor index_select(const Tensor& x, int dim, const Tensor& ids) {
  const char* op = "index_select";
  const int at = dim_index(op, x, dim);
  check_dtype(op, "ids", ids, DType::kI32);
  check_contiguous(op, "ids", ids);
  check_shape(op, "ids", ids, {ids.numel()});
  return gather_lines(contiguous(x), {.op = op, .dim = at, .shape = x.shape(), .index = ids});
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const char* op = "scatter_add";
  const int at = dim_index(op, x, dim);
  check_index(op, x, at, index);
  check_shape(op, "source", source, index.shape());
  check_dtype(op, "source", source, x.dtype());
  const Lines lines{.op = op, .dim = at, .shape = x.shape(), .index = index};
  Tensor y = lines.scattered(x, source, false);
  if (OpRecorder* to = recorder_of(y)) to->add(op, {x, index, source}, {y}, {{"dim", at}});
  if (!needs_grad(x.context(), {x, source})) return y;
  record(op, {x, source}, {&y},
         [lines = lines.without_index(), saved = SavedTensor(op, index)](BackwardArgs& args) {
           Grads grads = {args.dy(), {}};
           if (args.needs(1)) {
             grads[1] = lines.with(saved.get()).gather_from(contiguous(args.dy()));
           }
           return grads;
         });
  return y;
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const char* op = "scatter";
  const int at = dim_index(op, x, dim);
  check_index(op, x, at, index);
  check_shape(op, "source", source, index.shape());
  check_dtype(op, "source", source, x.dtype());
  const Lines lines{.op = op, .dim = at, .shape = x.shape(), .index = index};
  Tensor y = lines.scattered(x, source, true);
  if (!needs_grad(x.context(), {x, source})) return y;
  record(op, {x, source}, {&y},
         [lines = lines.without_index(), saved = SavedTensor(op, index)](BackwardArgs& args) {
           const Lines with = lines.with(saved.get());
           const Tensor dy = contiguous(args.dy());
           Grads grads(2);
           if (args.needs(0)) {
             grads[0] =
                 with.scattered(dy, zeros(dy.context(), with.index.shape(), dy.dtype()), true);
           }
           if (args.needs(1)) grads[1] = mul(with.gather_from(dy), with.last_uses());
           return grads;
         });
  return y;
}

}  // namespace shale
