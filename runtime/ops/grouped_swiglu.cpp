#include "shale/runtime/ops/grouped_swiglu.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/grouped_gemm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"

namespace shale {
namespace {

constexpr const char* kOp = "grouped_swiglu";

using kernels::GroupedBy;

void check_weights(const Tensor& x, const Tensor& w_gate, const Tensor& w_up, const Tensor& w_down,
                   const Tensor& offsets) {
  check_contiguous(kOp, "x", x);
  for (const auto& [name, w] :
       {std::pair("w_gate", &w_gate), {"w_up", &w_up}, {"w_down", &w_down}}) {
    check_contiguous(kOp, name, *w);
    check_dtype(kOp, name, *w, x.dtype());
    if (w->ndim() == 3) continue;
    throw ShapeError(cat(kOp, ": ", name, " is ", w->shape(), ", expected [E,*,*]"));
  }
  if (x.ndim() != 2) throw ShapeError(cat(kOp, ": x is ", x.shape(), ", expected [R, C]"));
  const int64_t E = w_gate.size(0), F = w_gate.size(1);
  check_shape(kOp, "w_gate", w_gate, {E, F, x.size(1)});
  check_shape(kOp, "w_up", w_up, w_gate.shape());
  check_shape(kOp, "w_down", w_down, {E, w_down.size(1), F});
  check_dtype(kOp, "offsets", offsets, DType::kI32);
  check_shape(kOp, "offsets", offsets, {E + 1});
}

// Returns a view of [E, rows, columns] in which each matrix is transposed.
View all_transposed(const View& matrices) {
  View view = matrices;
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

struct Saved {
  SavedTensor x, w_gate, w_up, w_down, offsets, gate, up, act;
  int64_t align = 1;
};

// Ranges of rows, one for each group (expert).
struct Groups {
  Tensor offsets;
  int64_t align = 1;
};

// Computes dyᵀ x of each group, if the gradient is needed.
void emit_grouped_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                       const Groups& groups, const View& dy, const View& x) {
  emit_grad(args, {input, weight, dy.dtype}, grads, [&](const Tensor& dw, bool accumulate) {
    kernels::grouped_gemm(dw.exec(), {.offsets = groups.offsets,
                                      .by = GroupedBy::kInner,
                                      .a = transposed(dy),
                                      .b = x,
                                      .c = dw,
                                      .accumulate = accumulate,
                                      .align = groups.align});
  });
}

// The op's inputs are x, w_gate, w_up, w_down, in this order.
Grads grouped_swiglu_backward(BackwardArgs& args, const Saved& saved) {
  Grads grads(4);
  const Tensor& dy = args.dy();
  const Exec& exec = dy.exec();
  const Groups groups{.offsets = saved.offsets.get(), .align = saved.align};
  const Tensor& offsets = groups.offsets;
  const Tensor w_down = saved.w_down.get();
  if (args.needs(3)) {
    const Tensor act = saved.act.get();
    emit_grouped_grad(args, 3, w_down, grads, groups, dy, act);
  }
  if (!args.needs(0) && !args.needs(1) && !args.needs(2)) return grads;
  const Tensor gate = saved.gate.get(), up = saved.up.get();
  Tensor d_gate = empty_like(gate), d_up = empty_like(up);
  kernels::grouped_gemm(exec, {.offsets = offsets,
                               .a = dy,
                               .b = w_down,
                               .c = d_gate,
                               .epilogue = kernels::Epilogue::kDSwiGlu,
                               .aux = gate,
                               .aux_up = up,
                               .c_up = d_up});
  const Tensor x = saved.x.get(), w_gate = saved.w_gate.get(), w_up = saved.w_up.get();
  emit_grouped_grad(args, 1, w_gate, grads, groups, d_gate, x);
  emit_grouped_grad(args, 2, w_up, grads, groups, d_up, x);
  if (!args.needs(0)) return grads;
  grads[0] = empty_like(x);
  kernels::grouped_gemm(exec, {.offsets = offsets, .a = d_gate, .b = w_gate, .c = grads[0]});
  kernels::grouped_gemm(
      exec, {.offsets = offsets, .a = d_up, .b = w_up, .c = grads[0], .accumulate = true});
  return grads;
}

}  // namespace

Tensor grouped_swiglu(const Tensor& x, const Tensor& w_gate, const Tensor& w_up,
                      const Tensor& w_down, const Tensor& offsets, int64_t align) {
  if (amp::wants_low({x, w_gate, w_up, w_down})) {
    using amp::to_low;
    return grouped_swiglu(to_low(x), to_low(w_gate), to_low(w_up), to_low(w_down), offsets, align);
  }
  check_weights(x, w_gate, w_up, w_down, offsets);
  Context& context = x.context();
  Tensor gate = empty(context, {x.size(0), w_gate.size(1)}, x.dtype());
  Tensor up = empty_like(gate), act = empty_like(gate);
  kernels::grouped_gemm(x.exec(), {.offsets = offsets,
                                   .a = x,
                                   .b = all_transposed(w_gate),
                                   .c = act,
                                   .epilogue = kernels::Epilogue::kSwiGlu,
                                   .aux = gate,
                                   .b_up = all_transposed(w_up),
                                   .aux_up = up});
  const bool records = needs_grad(context, {x, w_gate, w_up, w_down});
  // Saves tensors before the last GEMM. If this segment is being recomputed, saving the last needed
  // tensor ends the run, so the GEMM is not computed.
  Saved saved;
  if (records) {
    saved = {.x = {kOp, x},
             .w_gate = {kOp, w_gate},
             .w_up = {kOp, w_up},
             .w_down = {kOp, w_down},
             .offsets = {kOp, offsets},
             .gate = {kOp, gate},
             .up = {kOp, up},
             .act = {kOp, act},
             .align = align};
  }
  Tensor y = empty(context, {x.size(0), w_down.size(1)}, x.dtype());
  kernels::grouped_gemm(
      x.exec(), {.offsets = offsets, .a = act, .b = all_transposed(w_down), .c = y});
  if (!records) return y;
  record(kOp, {x, w_gate, w_up, w_down}, {&y},
         [saved](BackwardArgs& args) { return grouped_swiglu_backward(args, saved); });
  return y;
}

}  // namespace shale
