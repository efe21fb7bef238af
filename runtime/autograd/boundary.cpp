#include "shale/runtime/autograd/boundary.h"

#include <utility>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {

// Records an op with output x. record() ignores an op unless an input needs a gradient, so the op's
// input is a dummy leaf without values.
void begin_graph(Tensor& x, std::function<void(const Tensor& dx)> arrived) {
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &x.context();
  impl->requires_grad = true;
  const Tensor asks(std::move(impl));
  record("begin_graph", {asks}, {&x}, [arrived = std::move(arrived)](BackwardArgs& args) {
    arrived(args.dy());
    return Grads(1);
  });
}

Tensor history_of(const Tensor& x) {
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &x.context();
  impl->shape = x.shape();
  impl->strides = x.strides();
  impl->dtype = x.dtype();
  impl->requires_grad = true;
  impl->grad_fn = x.impl().grad_fn;
  impl->output = x.impl().output;
  return Tensor(std::move(impl));
}

}  // namespace shale
