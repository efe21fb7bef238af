#include "shale/comm/collective_ops.h"

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/context.h"

namespace shale::comm {
namespace {

CollectiveOptions options_for(const Tensor& x, const char* tag) {
  return {.tag = tag, .stream = x.exec().stream, .traffic = Traffic::kActivations};
}

Shape with_rows(const Tensor& x, int64_t rows) {
  Shape shape = x.shape();
  shape[0] = rows;
  return shape;
}

Tensor gathered(ProcessGroup& group, const Tensor& x, const char* tag) {
  Tensor y = empty(x.context(), with_rows(x, x.size(0) * group.size()), x.dtype());
  group.all_gather(x, y, options_for(x, tag));
  return y;
}

Tensor scattered(ProcessGroup& group, const Tensor& x, const char* tag) {
  Tensor y = empty(x.context(), with_rows(x, x.size(0) / group.size()), x.dtype());
  group.reduce_scatter_sum(x, y, options_for(x, tag));
  return y;
}

Tensor reduced(ProcessGroup& group, const Tensor& x, const char* tag) {
  Tensor y = empty(x.context(), x.shape(), x.dtype());
  x.context().copy(y.view().data, x.view().data, static_cast<size_t>(x.view().bytes()));
  group.all_reduce_sum(y, options_for(x, tag));
  return y;
}

void check_input(const char* op, const Tensor& x, int ranks) {
  check_defined(op, "x", x);
  check_contiguous(op, "x", x);
  if (x.ndim() > 0 && x.size(0) % ranks == 0) return;
  throw ShapeError(
      cat(op, ": x is ", to_string(x),
          ranks == 1 ? ", expected at least one dimension"
                     : cat(", expected a first dimension divisible by the ", ranks, " ranks")));
}

}  // namespace

Tensor all_gather(ProcessGroup& group, const Tensor& x) {
  check_input("all_gather", x, 1);
  Tensor y = gathered(group, x, "all_gather");
  record("all_gather", {x}, {&y}, [&group](BackwardArgs& args) {
    return Grads{scattered(group, args.dy(), "all_gather backward")};
  });
  return y;
}

Tensor reduce_scatter_sum(ProcessGroup& group, const Tensor& x) {
  check_input("reduce_scatter_sum", x, group.size());
  Tensor y = scattered(group, x, "reduce_scatter_sum");
  record("reduce_scatter_sum", {x}, {&y}, [&group](BackwardArgs& args) {
    return Grads{gathered(group, args.dy(), "reduce_scatter_sum backward")};
  });
  return y;
}

Tensor all_reduce_sum(ProcessGroup& group, const Tensor& x) {
  check_defined("all_reduce_sum", "x", x);
  check_contiguous("all_reduce_sum", "x", x);
  Tensor y = reduced(group, x, "all_reduce_sum");
  record("all_reduce_sum", {x}, {&y}, [&group](BackwardArgs& args) {
    return Grads{reduced(group, args.dy(), "all_reduce_sum backward")};
  });
  return y;
}

}  // namespace shale::comm
