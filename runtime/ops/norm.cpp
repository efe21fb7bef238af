#include "runtime/ops/norm.h"

#include "kernels/norm.h"
#include "runtime/amp/autocast.h"
#include "runtime/autograd/tape.h"
#include "runtime/ops/matrix.h"

namespace shale {
namespace {

void check_norm(const Tensor& x, const Tensor& branch, const Tensor& gain, const Tensor& bias) {
  check_contiguous("layer_norm", "x", x);
  check_shape("layer_norm", "gain", gain, {x.size(-1)});
  check_dtype("layer_norm", "gain", gain, x.dtype());
  if (bias.defined()) check_shape("layer_norm", "bias", bias, {x.size(-1)});
  if (branch.defined()) {
    check_shape("layer_norm", "branch", branch, x.shape());
    check_contiguous("layer_norm", "branch", branch);
  }
}

View optional_view(const Tensor& x) {
  return x.defined() ? x.view() : View{};
}

Tensor normalized(const Tensor& stream, const Tensor& gain, const Tensor& bias, float eps) {
  const int64_t rows = as_matrix(stream).rows();
  Tensor y = empty_like(stream);
  kernels::layer_norm_fwd(stream.exec(), {.x = as_matrix(stream),
                                          .gain = gain,
                                          .bias = optional_view(bias),
                                          .y = as_matrix(y),
                                          .mean = empty(stream.context(), {rows}, DType::kF32),
                                          .rstd = empty(stream.context(), {rows}, DType::kF32),
                                          .eps = eps});
  return y;
}

}  // namespace

NormedStream stream_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& gain,
                               const Tensor& bias, float eps) {
  if (amp::wants_f32({x, branch, gain, bias})) {
    Tensor stream = amp::add_residual(x, branch);
    const Tensor y = layer_norm(amp::to_f32(stream), amp::to_f32(gain), amp::to_f32(bias), eps);
    return {y, stream};
  }
  check_norm(x, branch, gain, bias);
  Context& context = x.context();
  const int64_t rows = as_matrix(x).rows();
  Tensor y = empty_like(x);
  Tensor stream = branch.defined() ? empty_like(x) : x.recorded_alias(x.shape(), x.strides());
  Tensor mean = empty(context, {rows}, DType::kF32);
  Tensor rstd = empty(context, {rows}, DType::kF32);
  kernels::layer_norm_fwd(x.exec(), {.x = as_matrix(x),
                                     .residual = branch.defined() ? as_matrix(branch) : View{},
                                     .sum = branch.defined() ? as_matrix(stream) : View{},
                                     .gain = gain,
                                     .bias = optional_view(bias),
                                     .y = as_matrix(y),
                                     .mean = mean,
                                     .rstd = rstd,
                                     .eps = eps});
  if (!needs_grad(context, {x, branch, gain, bias})) return {y, stream};
  const char* op = "layer_norm";
  const SavedTensor saved_stream(op, stream), saved_gain(op, gain);
  if (wants_recipes(context)) {
    set_recipe(y, [s = saved_stream, gain = saved_gain, bias = SavedTensor(op, bias), eps] {
      return normalized(s.get(), gain.get(), bias.get(), eps);
    });
  }
  const auto backward = [s = saved_stream, gain = saved_gain, mean = SavedTensor(op, mean),
                         rstd = SavedTensor(op, rstd), bias](BackwardArgs& args) {
    Grads grads(4);
    const Tensor& dy = args.dy(0);
    const Tensor& d_stream = args.dy(1);
    if (!dy.defined()) {  // the normalised output was not used
      grads[0] = grads[1] = d_stream;
      return grads;
    }
    const Tensor sum = s.get();
    Tensor dx = empty_like(sum);
    kernels::LayerNormBwdArgs kernel{.dy = as_matrix(dy),
                                     .s = as_matrix(sum),
                                     .gain = gain.get(),
                                     .mean = mean.get(),
                                     .rstd = rstd.get(),
                                     .d_sum = d_stream.defined() ? as_matrix(d_stream) : View{},
                                     .dx = as_matrix(dx),
                                     .dgain = {},
                                     .dbias = {}};
    emit_grad(args, 2, gain.get(), grads, [&](const Tensor& dgain, bool accumulate) {
      kernel.dgain = dgain;
      kernel.accumulate_dgain = accumulate;
    });
    emit_grad(args, 3, bias, grads, [&](const Tensor& dbias, bool accumulate) {
      kernel.dbias = dbias;
      kernel.accumulate_dbias = accumulate;
    });
    kernels::layer_norm_bwd(dy.exec(), kernel);
    grads[0] = grads[1] = dx;
    return grads;
  };
  record(op, {x, branch, gain, bias}, {&y, &stream}, backward);
  return {y, stream};
}

Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, float eps) {
  return stream_layer_norm(x, {}, gain, bias, eps).y;
}

}  // namespace shale
