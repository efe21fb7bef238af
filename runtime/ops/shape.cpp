#include "shale/runtime/ops/shape.h"

#include <utility>

#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/boundary.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

Shape infer(const Tensor& x, Shape shape) {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] == -1 && unknown < 0) {
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0 && known > 0) shape[unknown] = x.numel() / known;
  if (shape.numel() != x.numel()) {
    throw ShapeError(cat("reshape: x is ", x.shape(), ", expected as many elements as ", shape));
  }
  return shape;
}

// Returns a view that autograd records, and whose history copy_() can update.
Tensor view_of(const Tensor& x, const Shape& shape, const Shape& strides, int64_t offset = 0) {
  Tensor y = x.alias(shape, strides, offset);
  const std::shared_ptr<TensorImpl>& base = x.impl().base ? x.impl().base : x.impl_ptr();
  Sharing& sharing = *base->sharing;
  const bool dense = View{.shape = base->shape, .strides = base->strides}.contiguous();
  if (!dense) sharing = Sharing::kHidden;
  if (sharing == Sharing::kNone) sharing = Sharing::kViews;
  y.impl().base = base;
  y.impl().edition = base->edition;
  return y;
}

Tensor swapped(const Tensor& x, int a, int b) {
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return view_of(x, shape, strides);
}

// slice() that autograd does not record.
Tensor part_of(const Tensor& x, int dim, int64_t begin, int64_t end) {
  Shape shape = x.shape();
  shape[dim] = end - begin;
  return x.alias(shape, x.strides(), begin * x.strides()[dim]);
}

Tensor window(const Tensor& x, int dim, int64_t begin, int64_t end) {
  Shape shape = x.shape();
  shape[dim] = end - begin;
  return view_of(x, shape, x.strides(), begin * x.strides()[dim]);
}

// The elements of a dense base that a view shows. A tensor without a base shows all its elements.
struct Region {
  Shape shape, strides;
  int64_t offset = 0;

  explicit Region(const Tensor& x) : shape(x.shape()), strides(contiguous_strides(x.shape())) {
    if (x.impl().base == nullptr) return;
    strides = x.strides();
    offset = x.impl().offset - x.impl().base->offset;
  }
  Tensor of(const Tensor& dense) const { return dense.alias(shape, strides, offset); }
};

// Updates the history of the base of `to` after a copy: the region that `to` shows now comes from
// x.
void record_copy(const Tensor& to, const Tensor& x) {
  Tensor base = to.impl().base != nullptr ? Tensor(to.impl().base) : to;
  const Tensor before = base.requires_grad() ? history_of(base) : Tensor();
  record("copy_", {before, x}, {&base}, [region = Region(to)](BackwardArgs& args) {
    const Tensor dy = contiguous(args.dy());
    Grads grads(2);
    if (args.needs(1)) {
      grads[1] = empty(dy.context(), region.shape, dy.dtype());
      kernels::copy(dy.exec(), {.x = region.of(dy), .y = grads[1]});
    }
    if (args.needs(0)) {
      grads[0] = empty_like(dy);
      kernels::copy(dy.exec(), {.x = dy, .y = grads[0]});
      const Tensor zero = zeros(dy.context(), {}, dy.dtype());
      kernels::copy(dy.exec(), {.x = broadcast_view(zero, region.shape), .y = region.of(grads[0])});
    }
    return grads;
  });
  ++base.impl().edition;
}

// Throws unless the histories of all tensors that use the memory of `to` can be updated.
void check_recordable(const Tensor& to) {
  const TensorImpl& base = to.impl().base != nullptr ? *to.impl().base : to.impl();
  if (base.requires_grad && base.grad_fn == nullptr) {
    throw AutogradError(cat("copy_: ", argument_text("the target", Tensor(to.impl().base)), " ", to,
                            " is, or is a view of, a leaf that requires a gradient, expected the "
                            "result of an op"));
  }
  if (*to.impl().sharing != Sharing::kHidden) return;
  throw AutogradError(cat("copy_: the memory of the target ", to,
                          " is also used elsewhere, for example by a sharded module, which would "
                          "not notice the change; expected a copy, such as scale(x, 1)"));
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& wanted) {
  check_contiguous("reshape", "x", x);
  const Shape shape = infer(x, wanted);
  Tensor y = view_of(x, shape, contiguous_strides(shape));
  if (OpRecorder* to = recorder_of(y)) to->add("reshape", {x}, {y});
  record("reshape", {x}, {&y}, [from = x.shape()](BackwardArgs& args) {
    const Tensor dy = contiguous(args.dy());
    return Grads{dy.alias(from, contiguous_strides(from))};
  });
  return y;
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  const int a = dim_index("transpose", x, dim0), b = dim_index("transpose", x, dim1);
  Tensor y = swapped(x, a, b);
  if (OpRecorder* to = recorder_of(y)) to->add("transpose", {x}, {y}, {{"a", a}, {"b", b}});
  record("transpose", {x}, {&y},
         [a, b](BackwardArgs& args) { return Grads{contiguous(swapped(args.dy(), a, b))}; });
  return y;
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end) {
  const int index = dim_index("slice", x, dim);
  if (begin < 0 || end < begin || end > x.shape()[index]) {
    throw ShapeError(
        cat("slice: [", begin, ", ", end, ") exceeds dimension ", dim, " of ", x.shape()));
  }
  Tensor y = window(x, index, begin, end);
  if (OpRecorder* to = recorder_of(y))
    to->add("slice", {x}, {y}, {{"dim", index}, {"begin", begin}});
  record("slice", {x}, {&y}, [index, begin, end, shape = x.shape()](BackwardArgs& args) {
    Tensor dx = zeros(args.dy().context(), shape, args.dy().dtype());
    kernels::copy(dx.exec(), {.x = args.dy(), .y = window(dx, index, begin, end)});
    return Grads{dx};
  });
  return y;
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int dim) {
  const int index = dim_index("split", x, dim);
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  if (total != x.size(index)) {
    throw ShapeError(cat("split: the sizes add up to ", total, ", dimension ", dim, " of ",
                         x.shape(), " is ", x.size(index)));
  }
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice(x, index, begin, begin + size));
    begin += size;
  }
  return parts;
}

Tensor concat(const std::vector<Tensor>& tensors, int dim) {
  if (tensors.empty()) throw ShapeError("concat: there are no tensors, expected at least one");
  const Tensor& first = tensors.front();
  check_defined("concat", "a tensor", first);
  const int index = dim_index("concat", first, dim);
  Shape shape = first.shape();
  shape[index] = 0;
  for (const Tensor& x : tensors) {
    check_dtype("concat", "a tensor", x, first.dtype());
    Shape want = first.shape();
    if (x.ndim() == first.ndim()) want[index] = x.size(index);
    check_shape("concat", "a tensor", x, want);
    shape[index] += x.size(index);
  }
  Tensor y = empty(first.context(), shape, first.dtype());
  std::vector<int64_t> begins = {0};
  for (const Tensor& x : tensors) {
    const int64_t begin = begins.back(), end = begin + x.size(index);
    kernels::copy(y.exec(), {.x = x, .y = part_of(y, index, begin, end)});
    begins.push_back(end);
  }
  if (OpRecorder* to = recorder_of(y)) {
    to->add("concat", {tensors.begin(), tensors.end()}, {y}, {{"dim", index}});
  }
  record("concat", tensors, {&y}, [index, begins](BackwardArgs& args) {
    Grads grads;
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      const bool needed = args.needs(int(i));
      grads.push_back(needed ? contiguous(part_of(args.dy(), index, begins[i], begins[i + 1]))
                             : Tensor());
    }
    return grads;
  });
  return y;
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  if (tensors.empty()) throw ShapeError("stack: there are no tensors, expected at least one");
  const Tensor& first = tensors.front();
  check_defined("stack", "a tensor", first);
  const int index = dim < 0 ? dim + first.ndim() + 1 : dim;
  if (index < 0 || index > first.ndim()) {
    throw ShapeError(cat("stack: no dimension ", dim, " in stacked tensors ", first.shape()));
  }
  Shape shape;
  for (int d = 0; d <= first.ndim(); ++d) {
    if (d == index) shape.push_back(1);
    if (d < first.ndim()) shape.push_back(first.size(d));
  }
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors) {
    check_shape("stack", "a tensor", x, first.shape());
    parts.push_back(reshape(contiguous(x), shape));
  }
  return concat(parts, index);
}

void copy_(const Tensor& to, const Tensor& x) {
  check_shape("copy_", "x", x, to.shape());
  check_dtype("copy_", "x", x, to.dtype());
  check_same_device("copy_", to, {&x, 1});
  if (OpRecorder* seen = recorder_of(to)) seen->check("copy_", {}, {to});
  const bool records = needs_grad(to.context(), {to, x});
  if (records) check_recordable(to);
  kernels::copy(to.exec(), {.x = x, .y = to});
  to.bump_version();
  if (records) record_copy(to, x);
}

void update_view(const Tensor& view) {
  const Tensor base(view.impl().base);
  if (!base.context().autograd().enabled) return;
  view.impl().edition = base.impl().edition;
  Tensor again = view;
  record("view", {base}, {&again}, [region = Region(view), shape = base.shape()](auto& args) {
    const Tensor dx = zeros(args.dy().context(), shape, args.dy().dtype());
    kernels::copy(dx.exec(), {.x = args.dy(), .y = region.of(dx)});
    return Grads{dx};
  });
}

namespace {

// Returns a copy of x in `context`, without recording it. Waits for x and for the copy.
Tensor moved(const Tensor& x, Context& context) {
  const NoGrad no_grad(x.context());
  const Tensor dense = contiguous(x);
  const Tensor y = empty(context, x.shape(), x.dtype());
  x.context().synchronize();
  Context& mover = context.device().type == DeviceType::kCpu ? x.context() : context;
  mover.copy(y.data(), dense.data(), dense.bytes());
  mover.synchronize();
  return y;
}

}  // namespace

Tensor to(const Tensor& x, Context& context) {
  check_defined("to", "x", x);
  if (&x.context() == &context) return x;
  Tensor y = moved(x, context);
  record_move("to", x, y,
              [&from = x.context()](BackwardArgs& args) { return Grads{moved(args.dy(), from)}; });
  return y;
}

Tensor contiguous(const Tensor& x) {
  if (x.contiguous()) return x;
  Tensor y = empty_like(x);
  kernels::copy(x.exec(), {.x = x, .y = y});
  if (OpRecorder* to = recorder_of(y)) to->add("contiguous", {x}, {y});
  record("contiguous", {x}, {&y}, [](BackwardArgs& args) { return Grads{args.dy()}; });
  return y;
}

}  // namespace shale
