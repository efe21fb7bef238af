#include "shale/runtime/ops/swiglu.h"

#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/row_gemm.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

constexpr const char* kOp = "swiglu";

void check_swiglu(const Tensor& x, const Tensor& w_gate, const Tensor& w_up, const Tensor& w_down,
                  const Tensor& residual) {
  check_contiguous(kOp, "x", x);
  for (const auto& [name, w] :
       {std::pair("w_gate", &w_gate), {"w_up", &w_up}, {"w_down", &w_down}}) {
    check_contiguous(kOp, name, *w);
    check_dtype(kOp, name, *w, x.dtype());
  }
  check_shape(kOp, "w_gate", w_gate, {w_gate.size(0), x.size(-1)});
  check_shape(kOp, "w_up", w_up, w_gate.shape());
  check_shape(kOp, "w_down", w_down, {w_down.size(0), w_gate.size(0)});
  if (residual.defined()) {
    check_shape(kOp, "residual", residual, with_last(x.shape(), w_down.size(0)));
    check_contiguous(kOp, "residual", residual);
  }
}

struct Saved {
  SavedTensor x, w_gate, w_up, w_down, gate, up, act;
};

Saved save(const Tensor& x, const Tensor& w_gate, const Tensor& w_up, const Tensor& w_down,
           const Tensor& gate, const Tensor& up, Tensor& act) {
  Saved saved{.x = {kOp, x},
              .w_gate = {kOp, w_gate},
              .w_up = {kOp, w_up},
              .w_down = {kOp, w_down},
              .gate = {kOp, gate},
              .up = {kOp, up},
              .act = {}};
  if (wants_recipes(x.context())) {
    set_recipe(act, [gate = saved.gate, up = saved.up] {
      const Tensor input = gate.get();
      Tensor again = empty_like(input);
      kernels::swiglu_fwd(input.exec(), {.gate = input, .up = up.get(), .y = again});
      return again;
    });
  }
  saved.act = {kOp, act};
  return saved;
}

// The op's inputs are x, w_gate, w_up, w_down, residual, in this order.
Grads swiglu_backward(BackwardArgs& args, const Saved& saved) {
  Grads grads(5);
  const Tensor& dy = args.dy();
  const Exec& exec = dy.exec();
  const Tensor w_down = saved.w_down.get();
  if (args.needs(3)) emit_weight_grad(args, 3, w_down, grads, dy, saved.act.get());
  if (args.needs(4)) grads[4] = dy;
  if (!args.needs(0) && !args.needs(1) && !args.needs(2)) return grads;

  const Tensor gate = saved.gate.get(), up = saved.up.get();
  Tensor d_gate = empty_like(gate), d_up = empty_like(up);
  kernels::gemm(exec, {.a = as_matrix(dy),
                       .b = w_down,
                       .c = as_matrix(d_gate),
                       .epilogue = kernels::Epilogue::kDSwiGlu,
                       .aux = as_matrix(gate),
                       .aux_up = as_matrix(up),
                       .c_up = as_matrix(d_up)});
  const Tensor x = saved.x.get(), w_gate = saved.w_gate.get(), w_up = saved.w_up.get();
  emit_weight_grad(args, 1, w_gate, grads, d_gate, x);
  emit_weight_grad(args, 2, w_up, grads, d_up, x);
  if (args.needs(0)) {
    grads[0] = empty_like(x);
    const View dx = as_matrix(grads[0]);
    kernels::gemm(exec, {.a = as_matrix(d_gate), .b = w_gate, .c = dx});
    kernels::gemm(exec, {.a = as_matrix(d_up), .b = w_up, .c = dx, .accumulate = true});
  }
  return grads;
}

}  // namespace

Tensor swiglu(const Tensor& x, const Tensor& w_gate, const Tensor& w_up, const Tensor& w_down,
              const Tensor& residual) {
  if (amp::wants_low({x, w_gate, w_up, w_down})) {
    using amp::to_low;
    return amp::add_residual(swiglu(to_low(x), to_low(w_gate), to_low(w_up), to_low(w_down)),
                             residual);
  }
  if (amp::wants_low({residual})) {
    return amp::add_residual(swiglu(x, w_gate, w_up, w_down), residual);
  }
  check_swiglu(x, w_gate, w_up, w_down, residual);
  Context& context = x.context();
  Tensor gate = empty(context, with_last(x.shape(), w_gate.size(0)), x.dtype());
  Tensor up = empty_like(gate), act = empty_like(gate);
  row_gemm(x, {}, act,
           {.b = transposed(w_gate),
            .epilogue = kernels::Epilogue::kSwiGlu,
            .aux = as_matrix(gate),
            .b_up = transposed(w_up),
            .aux_up = as_matrix(up)});
  const bool records = needs_grad(context, {x, w_gate, w_up, w_down, residual});
  // Saves tensors before the second GEMM. If this segment is being recomputed, saving the last
  // needed tensor ends the run, so the GEMM is not computed.
  Saved saved;
  if (records) saved = save(x, w_gate, w_up, w_down, gate, up, act);
  Tensor y = empty(context, with_last(x.shape(), w_down.size(0)), x.dtype());
  row_gemm(act, residual, y, {.b = transposed(w_down)});
  if (OpRecorder* to = recorder_of(y)) to->add(kOp, {x, w_gate, w_up, w_down, residual}, {y});
  if (!records) return y;
  record(kOp, {x, w_gate, w_up, w_down, residual}, {&y},
         [saved](BackwardArgs& args) { return swiglu_backward(args, saved); });
  return y;
}

}  // namespace shale
