#include "shale/runtime/ops/norm.h"

#include "shale/kernels/norm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

View optional_view(const Tensor& x) {
  return x.defined() ? x.view() : View{};
}

// Kernels of a norm. LayerNorm and RMSNorm are one op with different kernels. RMSNorm has
// LayerNorm's arguments, with mean and bias undefined.
struct NormKind {
  const char* op;
  bool has_mean;
  void (*forward)(const Exec& exec, const kernels::LayerNormFwdArgs& args);
  void (*backward)(const Exec& exec, const kernels::LayerNormBwdArgs& args);
};

void rms_norm_fwd(const Exec& exec, const kernels::LayerNormFwdArgs& a) {
  kernels::rms_norm_fwd(exec, {.x = a.x,
                               .residual = a.residual,
                               .sum = a.sum,
                               .gain = a.gain,
                               .y = a.y,
                               .rstd = a.rstd,
                               .eps = a.eps});
}

void rms_norm_bwd(const Exec& exec, const kernels::LayerNormBwdArgs& a) {
  kernels::rms_norm_bwd(exec, {.dy = a.dy,
                               .s = a.s,
                               .gain = a.gain,
                               .rstd = a.rstd,
                               .d_sum = a.d_sum,
                               .dx = a.dx,
                               .dgain = a.dgain,
                               .accumulate_dgain = a.accumulate_dgain});
}

constexpr NormKind kLayerNorm = {
    .op = "layer_norm",
    .has_mean = true,
    .forward = [](const Exec& exec,
                  const kernels::LayerNormFwdArgs& args) { kernels::layer_norm_fwd(exec, args); },
    .backward = [](const Exec& exec,
                   const kernels::LayerNormBwdArgs& args) { kernels::layer_norm_bwd(exec, args); }};
constexpr NormKind kRmsNorm = {
    .op = "rms_norm", .has_mean = false, .forward = rms_norm_fwd, .backward = rms_norm_bwd};

// Checks shapes and dtypes. `bias` is undefined for a norm without a bias.
void check_norm(const char* op, const Tensor& x, const Tensor& branch, const Tensor& gain,
                const Tensor& bias) {
  check_contiguous(op, "x", x);
  check_shape(op, "gain", gain, {x.size(-1)});
  check_dtype(op, "gain", gain, x.dtype());
  if (bias.defined()) check_shape(op, "bias", bias, {x.size(-1)});
  if (branch.defined()) {
    check_shape(op, "branch", branch, x.shape());
    check_contiguous(op, "branch", branch);
  }
}

// Statistics of each row, f32.
struct RowStatistics {
  Tensor mean;  // undefined for RMSNorm
  Tensor rstd;
};

// Computes y = norm(x + branch). If branch is defined, writes the sum to stream.
RowStatistics normalize(const NormKind& kind, const Tensor& x, const Tensor& branch,
                        const Tensor& stream, const Tensor& gain, const Tensor& bias,
                        const Tensor& y, float eps) {
  const int64_t rows = as_matrix(x).rows();
  const auto per_row = [&] { return empty(x.context(), {rows}, DType::kF32); };
  const RowStatistics statistics{.mean = kind.has_mean ? per_row() : Tensor(), .rstd = per_row()};
  kind.forward(x.exec(), {.x = as_matrix(x),
                          .residual = branch.defined() ? as_matrix(branch) : View{},
                          .sum = branch.defined() ? as_matrix(stream) : View{},
                          .gain = gain,
                          .bias = optional_view(bias),
                          .y = as_matrix(y),
                          .mean = optional_view(statistics.mean),
                          .rstd = statistics.rstd,
                          .eps = eps});
  return statistics;
}

NormedStream stream_norm(const NormKind& kind, const Tensor& x, const Tensor& branch,
                         const Tensor& gain, const Tensor& bias, float eps) {
  if (amp::wants_f32({x, branch, gain, bias})) {
    Tensor stream = amp::add_residual(x, branch);
    const auto norm =
        stream_norm(kind, amp::to_f32(stream), {}, amp::to_f32(gain), amp::to_f32(bias), eps);
    return {norm.y, stream};
  }
  check_norm(kind.op, x, branch, gain, bias);
  Context& context = x.context();
  Tensor y = empty_like(x);
  Tensor stream = branch.defined() ? empty_like(x) : x.recorded_alias(x.shape(), x.strides());
  const RowStatistics statistics = normalize(kind, x, branch, stream, gain, bias, y, eps);
  if (OpRecorder* to = recorder_of(y)) {
    to->add(kind.op, {x, branch, gain, bias}, {y, stream}, {{"eps", eps}});
  }
  if (!needs_grad(context, {x, branch, gain, bias})) return {y, stream};
  const SavedTensor saved_stream(kind.op, stream), saved_gain(kind.op, gain);
  if (wants_recipes(context)) {
    set_recipe(y,
               [kind, s = saved_stream, gain = saved_gain, bias = SavedTensor(kind.op, bias), eps] {
                 const Tensor sum = s.get();
                 Tensor again = empty_like(sum);
                 normalize(kind, sum, {}, {}, gain.get(), bias.get(), again, eps);
                 return again;
               });
  }
  const auto backward = [kind, s = saved_stream, gain = saved_gain,
                         mean = SavedTensor(kind.op, statistics.mean),
                         rstd = SavedTensor(kind.op, statistics.rstd)](BackwardArgs& args) {
    Grads grads(4);
    const Tensor& dy = args.dy(0);
    const Tensor& d_stream = args.dy(1);
    if (!dy.defined()) {  // nothing used the normalised output, so only the stream has a gradient
      grads[0] = grads[1] = d_stream;
      return grads;
    }
    const Tensor sum = s.get();
    Tensor dx = empty_like(sum);
    const Tensor saved_mean = mean.get(), saved_rstd = rstd.get(), weight = gain.get();
    kernels::LayerNormBwdArgs all{.dy = as_matrix(dy),
                                  .s = as_matrix(sum),
                                  .gain = weight,
                                  .mean = optional_view(saved_mean),
                                  .rstd = saved_rstd,
                                  .d_sum = d_stream.defined() ? as_matrix(d_stream) : View{},
                                  .dx = as_matrix(dx),
                                  .dgain = {},
                                  .dbias = {}};
    emit_grad(args, {2, weight}, grads, [&](const Tensor& dgain, bool accumulate) {
      all.dgain = dgain;
      all.accumulate_dgain = accumulate;
    });
    emit_grad(args, {3, weight}, grads, [&](const Tensor& dbias, bool accumulate) {
      all.dbias = dbias;
      all.accumulate_dbias = accumulate;
    });
    kind.backward(dy.exec(), all);
    grads[0] = grads[1] = dx;
    return grads;
  };
  record(kind.op, {x, branch, gain, bias}, {&y, &stream}, backward);
  return {y, stream};
}

}  // namespace

NormedStream stream_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& gain,
                               const Tensor& bias, float eps) {
  return stream_norm(kLayerNorm, x, branch, gain, bias, eps);
}

Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, float eps) {
  return stream_layer_norm(x, {}, gain, bias, eps).y;
}

NormedStream stream_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& gain, float eps) {
  return stream_norm(kRmsNorm, x, branch, gain, {}, eps);
}

Tensor rms_norm(const Tensor& x, const Tensor& gain, float eps) {
  return stream_rms_norm(x, {}, gain, eps).y;
}

}  // namespace shale
