#include "shale/runtime/ops/batch_norm.h"

#include "shale/kernels/batch_norm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

constexpr const char* kOp = "batch_norm";

void check_batch_norm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                      const BatchNormOptions& options, const Tensor& residual) {
  check_contiguous(kOp, "x", x);
  const int64_t channels = x.size(-1);
  check_shape(kOp, "gain", gain, {channels});
  check_dtype(kOp, "gain", gain, x.dtype());
  check_shape(kOp, "bias", bias, {channels});
  check_dtype(kOp, "bias", bias, x.dtype());
  for (const auto& [name, running] : {std::pair("running_mean", &options.running_mean),
                                      {"running_variance", &options.running_variance}}) {
    check_shape(kOp, name, *running, {channels});
    check_dtype(kOp, name, *running, DType::kF32);
  }
  if (!residual.defined()) return;
  check_shape(kOp, "residual", residual, x.shape());
  check_contiguous(kOp, "residual", residual);
  check_dtype(kOp, "residual", residual, x.dtype());
}

// Statistics with which rows are normalised.
struct Statistics {
  Tensor mean, rstd;  // [C] f32 each: mean, and rstd = 1 / sqrt(variance + eps), per channel
  Tensor count;       // [1] f32, number of rows; undefined: the statistics are constants
};

Statistics fixed_statistics(const BatchNormOptions& options) {
  const NoGrad no_grad(options.running_mean.context());
  return {.mean = options.running_mean,
          .rstd = rsqrt(add(options.running_variance, options.eps)),
          .count = {}};
}

// Returns the statistics of the rows of all ranks.
Statistics batch_statistics(const Tensor& x, const BatchNormOptions& options) {
  Context& context = x.context();
  const int64_t channels = x.size(-1);
  const auto floats = [&](int64_t n) { return empty(context, {n}, DType::kF32); };
  Tensor moments = floats(2 * channels + 1);
  kernels::batch_moments(x.exec(), {.x = as_matrix(x), .moments = moments});
  if (options.peers != nullptr) moments = options.peers->gather(moments);
  Statistics result{.mean = floats(channels), .rstd = floats(channels), .count = floats(1)};
  const int64_t width = 2 * channels + 1;
  // A recomputed segment must not change the running statistics, because its first run has changed
  // them.
  const bool moves = !context.autograd().recomputing;
  kernels::batch_merge(
      x.exec(),
      {.moments = make_view(moments.data(), DType::kF32, {moments.numel() / width, width}),
       .mean = result.mean,
       .rstd = result.rstd,
       .count = result.count,
       .running_mean = moves ? options.running_mean.view() : View{},
       .running_variance = moves ? options.running_variance.view() : View{},
       .eps = options.eps,
       .momentum = options.momentum});
  return result;
}

struct Saved {
  SavedTensor x, gain, y, mean, rstd, count;  // y is saved only with ReLU
  Tensor bias;
  std::shared_ptr<const BatchPeers> peers;
};

// The op's inputs are x, gain, bias, residual, in this order.
Grads batch_norm_backward(BackwardArgs& args, const Saved& saved) {
  Grads grads(4);
  const Tensor dy = args.dy(), x = saved.x.get(), gain = saved.gain.get(), y = saved.y.get();
  const Tensor mean = saved.mean.get(), rstd = saved.rstd.get(), count = saved.count.get();
  const View y_view = y.defined() ? as_matrix(y) : View{};
  const Tensor sums = empty(x.context(), {2, x.size(-1)}, DType::kF32);
  kernels::BatchNormSumsArgs kernel{.dy = as_matrix(dy),
                                    .x = as_matrix(x),
                                    .y = y_view,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .sums = sums};
  // The gradients of gain and bias cover this rank's rows only. Like all gradients, they are
  // reduced over the ranks later.
  emit_grad(args, {1, gain}, grads, [&](const Tensor& dgain, bool accumulate) {
    kernel.dgain = dgain;
    kernel.accumulate_dgain = accumulate;
  });
  emit_grad(args, {2, saved.bias}, grads, [&](const Tensor& dbias, bool accumulate) {
    kernel.dbias = dbias;
    kernel.accumulate_dbias = accumulate;
  });
  kernels::batch_norm_sums(dy.exec(), kernel);
  if (saved.peers != nullptr && count.defined()) saved.peers->sum(sums);
  if (!args.needs(0) && !args.needs(3)) return grads;
  const Tensor dx = empty_like(x);
  const Tensor d_residual = args.needs(3) && y.defined() ? empty_like(x) : Tensor();
  kernels::batch_norm_grad(dy.exec(),
                           {.dy = as_matrix(dy),
                            .x = as_matrix(x),
                            .y = y_view,
                            .mean = mean,
                            .rstd = rstd,
                            .gain = gain,
                            .sums = count.defined() ? sums.view() : View{},
                            .count = count.defined() ? count.view() : View{},
                            .dx = as_matrix(dx),
                            .d_residual = d_residual.defined() ? as_matrix(d_residual) : View{}});
  grads[0] = dx;
  if (args.needs(3)) grads[3] = d_residual.defined() ? d_residual : dy;
  return grads;
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                  const BatchNormOptions& options, const Tensor& residual) {
  if (amp::wants_f32({x, gain, bias, residual})) {
    return batch_norm(amp::to_f32(x), amp::to_f32(gain), amp::to_f32(bias), options,
                      amp::to_f32(residual));
  }
  check_batch_norm(x, gain, bias, options, residual);
  Context& context = x.context();
  const Statistics statistics =
      context.autograd().training ? batch_statistics(x, options) : fixed_statistics(options);
  Tensor y = empty_like(x);
  kernels::batch_norm(x.exec(), {.x = as_matrix(x),
                                 .mean = statistics.mean,
                                 .rstd = statistics.rstd,
                                 .gain = gain,
                                 .bias = bias,
                                 .residual = residual.defined() ? as_matrix(residual) : View{},
                                 .relu = options.relu,
                                 .y = as_matrix(y)});
  if (OpRecorder* to = recorder_of(y)) {
    to->add(kOp, {x, gain, bias, residual, options.running_mean, options.running_variance}, {y},
            {{"eps", options.eps}, {"relu", options.relu}});
  }
  if (!needs_grad(context, {x, gain, bias, residual})) return y;
  const Saved saved{.x = {kOp, x},
                    .gain = {kOp, gain},
                    .y = {kOp, options.relu ? y : Tensor()},
                    .mean = {kOp, statistics.mean},
                    .rstd = {kOp, statistics.rstd},
                    .count = {kOp, statistics.count},
                    .bias = bias,
                    .peers = options.peers};
  record(kOp, {x, gain, bias, residual}, {&y},
         [saved](BackwardArgs& args) { return batch_norm_backward(args, saved); });
  return y;
}

}  // namespace shale
