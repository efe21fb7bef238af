#include "runtime/ops/rms_norm.h"

#include "kernels/norm.h"
#include "runtime/amp/autocast.h"
#include "runtime/autograd/tape.h"
#include "runtime/ops/matrix.h"

namespace shale {
namespace {

constexpr const char* kOp = "rms_norm";

void check_norm(const Tensor& x, const Tensor& branch, const Tensor& gain) {
  check_contiguous(kOp, "x", x);
  check_shape(kOp, "gain", gain, {x.size(-1)});
  check_dtype(kOp, "gain", gain, x.dtype());
  if (!branch.defined()) return;
  check_shape(kOp, "branch", branch, x.shape());
  check_contiguous(kOp, "branch", branch);
}

Tensor normalized(const Tensor& stream, const Tensor& gain, float eps) {
  Tensor y = empty_like(stream);
  const int64_t rows = as_matrix(stream).rows();
  kernels::rms_norm_fwd(stream.exec(), {.x = as_matrix(stream),
                                        .gain = gain,
                                        .y = as_matrix(y),
                                        .rstd = empty(stream.context(), {rows}, DType::kF32),
                                        .eps = eps});
  return y;
}

}  // namespace

NormedStream stream_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& gain, float eps) {
  if (amp::wants_f32({x, branch, gain})) {
    Tensor stream = amp::add_residual(x, branch);
    const Tensor y = rms_norm(amp::to_f32(stream), amp::to_f32(gain), eps);
    return {y, stream};
  }
  check_norm(x, branch, gain);
  Context& context = x.context();
  Tensor y = empty_like(x);
  Tensor stream = branch.defined() ? empty_like(x) : x.recorded_alias(x.shape(), x.strides());
  Tensor rstd = empty(context, {as_matrix(x).rows()}, DType::kF32);
  kernels::rms_norm_fwd(x.exec(), {.x = as_matrix(x),
                                   .residual = branch.defined() ? as_matrix(branch) : View{},
                                   .sum = branch.defined() ? as_matrix(stream) : View{},
                                   .gain = gain,
                                   .y = as_matrix(y),
                                   .rstd = rstd,
                                   .eps = eps});
  if (!needs_grad(context, {x, branch, gain})) return {y, stream};
  const SavedTensor saved_stream(kOp, stream), saved_gain(kOp, gain);
  if (wants_recipes(context)) {
    set_recipe(y, [s = saved_stream, gain = saved_gain, eps] {
      return normalized(s.get(), gain.get(), eps);
    });
  }
  const auto backward = [s = saved_stream, gain = saved_gain,
                         rstd = SavedTensor(kOp, rstd)](BackwardArgs& args) {
    Grads grads(3);
    const Tensor& dy = args.dy(0);
    const Tensor& d_stream = args.dy(1);
    if (!dy.defined()) {  // the normalised output was not used
      grads[0] = grads[1] = d_stream;
      return grads;
    }
    const Tensor sum = s.get();
    Tensor dx = empty_like(sum);
    kernels::RmsNormBwdArgs kernel{.dy = as_matrix(dy),
                                   .s = as_matrix(sum),
                                   .gain = gain.get(),
                                   .rstd = rstd.get(),
                                   .d_sum = d_stream.defined() ? as_matrix(d_stream) : View{},
                                   .dx = as_matrix(dx)};
    emit_grad(args, 2, gain.get(), grads, [&](const Tensor& dgain, bool accumulate) {
      kernel.dgain = dgain;
      kernel.accumulate_dgain = accumulate;
    });
    kernels::rms_norm_bwd(dy.exec(), kernel);
    grads[0] = grads[1] = dx;
    return grads;
  };
  record(kOp, {x, branch, gain}, {&y, &stream}, backward);
  return {y, stream};
}

Tensor rms_norm(const Tensor& x, const Tensor& gain, float eps) {
  return stream_rms_norm(x, {}, gain, eps).y;
}

}  // namespace shale
