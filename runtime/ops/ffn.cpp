#include "shale/runtime/ops/ffn.h"

#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/row_gemm.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

void check_ffn(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
               const Tensor& b2, const Tensor& residual) {
  check_contiguous("ffn", "x", x);
  check_defined("ffn", "w1", w1);
  check_defined("ffn", "w2", w2);
  check_shape("ffn", "w1", w1, {w1.size(0), x.size(-1)});
  check_shape("ffn", "w2", w2, {w2.size(0), w1.size(0)});
  check_shape("ffn", "b1", b1, {w1.size(0)});
  if (b2.defined()) check_shape("ffn", "b2", b2, {w2.size(0)});
  for (const auto& [name, w] : {std::pair("w1", &w1), std::pair("w2", &w2)}) {
    check_dtype("ffn", name, *w, x.dtype());
  }
  if (residual.defined()) {
    check_shape("ffn", "residual", residual, with_last(x.shape(), w2.size(0)));
    check_contiguous("ffn", "residual", residual);
  }
}

struct Saved {
  SavedTensor x, w1, w2, pre, act;
};

Saved save(const char* op, const Tensor& x, const Tensor& w1, const Tensor& w2, const Tensor& pre,
           Tensor& act, Gelu gelu) {
  Saved saved{.x = {op, x}, .w1 = {op, w1}, .w2 = {op, w2}, .pre = {op, pre}, .act = {}};
  if (wants_recipes(x.context())) {
    set_recipe(act, [pre = saved.pre, gelu] {
      const Tensor input = pre.get();
      Tensor again = empty_like(input);
      kernels::gelu_fwd(input.exec(), {.x = input, .y = again, .exact = gelu == Gelu::kErf});
      return again;
    });
  }
  saved.act = {op, act};
  return saved;
}

// The op's inputs are x, w1, b1, w2, b2, residual, in this order.
Grads ffn_backward(BackwardArgs& args, const Saved& saved, const Tensor& b1, const Tensor& b2,
                   Gelu gelu) {
  Grads grads(6);
  const Tensor& dy = args.dy();
  const View dy2 = as_matrix(dy);
  const Exec& exec = dy.exec();
  const Tensor w2 = saved.w2.get();
  if (args.needs(3)) emit_weight_grad(args, 3, w2, grads, dy, saved.act.get());
  emit_grad(args, {4, b2}, grads, [&](const Tensor& db, bool accumulate) {
    kernels::column_sum(exec, {.x = dy2, .y = db, .accumulate = accumulate});
  });
  const Tensor pre = saved.pre.get();
  Tensor d_pre = empty_like(pre);
  kernels::GemmArgs hidden{.a = dy2, .b = w2, .c = as_matrix(d_pre)};
  hidden.epilogue =
      gelu == Gelu::kTanh ? kernels::Epilogue::kDGeluTanh : kernels::Epilogue::kDGeluErf;
  hidden.aux = as_matrix(pre);
  emit_grad(args, {2, b1}, grads, [&](const Tensor& db, bool accumulate) {
    hidden.bias_grad = db;
    hidden.accumulate_bias_grad = accumulate;
  });
  kernels::gemm(exec, hidden);
  const Tensor x = saved.x.get();
  const Tensor w1 = saved.w1.get();
  emit_weight_grad(args, 1, w1, grads, d_pre, x);
  if (args.needs(0)) {
    grads[0] = empty_like(x);
    kernels::gemm(exec, {.a = as_matrix(d_pre), .b = w1, .c = as_matrix(grads[0])});
  }
  if (args.needs(5)) grads[5] = dy;
  return grads;
}

}  // namespace

Tensor ffn(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
           const Tensor& residual, Gelu gelu) {
  if (amp::wants_low({x, w1, b1, w2, b2})) {
    using amp::to_low;
    return amp::add_residual(
        ffn(to_low(x), to_low(w1), to_low(b1), to_low(w2), to_low(b2), {}, gelu), residual);
  }
  if (amp::wants_low({residual})) {
    return amp::add_residual(ffn(x, w1, b1, w2, b2, {}, gelu), residual);
  }
  check_ffn(x, w1, b1, w2, b2, residual);
  Context& context = x.context();
  Tensor pre = empty(context, with_last(x.shape(), w1.size(0)), x.dtype());
  Tensor act = empty_like(pre);
  row_gemm(
      x, {}, act,
      {.b = transposed(w1),
       .bias = b1,
       .epilogue = gelu == Gelu::kTanh ? kernels::Epilogue::kGeluTanh : kernels::Epilogue::kGeluErf,
       .aux = as_matrix(pre)});
  const char* op = "ffn";
  const bool records = needs_grad(context, {x, w1, b1, w2, b2, residual});
  // Saves tensors before the second GEMM. If this segment is being recomputed, saving the last
  // needed tensor ends the run, so the GEMM is not computed.
  Saved saved;
  if (records) saved = save(op, x, w1, w2, pre, act, gelu);
  Tensor y = empty(context, with_last(x.shape(), w2.size(0)), x.dtype());
  row_gemm(act, residual, y, {.b = transposed(w2), .bias = b2.defined() ? b2.view() : View{}});
  if (OpRecorder* to = recorder_of(y)) {
    to->add(op, {x, w1, b1, w2, b2, residual}, {y}, {{"exact", gelu == Gelu::kErf}});
  }
  if (!records) return y;
  record(op, {x, w1, b1, w2, b2, residual}, {&y}, [saved, b1, b2, gelu](BackwardArgs& args) {
    return ffn_backward(args, saved, b1, b2, gelu);
  });
  return y;
}

}  // namespace shale
