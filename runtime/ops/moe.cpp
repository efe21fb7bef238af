#include "shale/runtime/ops/moe.h"

#include <algorithm>
#include <cmath>

#include "shale/base/error.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/gemm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"

namespace shale {
namespace {

// Alignment of an expert's first row, if experts have many rows. It limits the number of different
// GEMM sizes, because oneDNN compiles code for each size.
constexpr int64_t kAlign = 32;

int64_t alignment(int64_t choices, int64_t experts) {
  return choices >= 2 * kAlign * experts ? kAlign : 1;
}

int64_t capacity_of(const RouterOptions& options, int64_t choices, int64_t experts) {
  if (options.capacity_factor <= 0) return 0;
  const double share = options.capacity_factor * double(choices) / double(experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share)));
}

// Writes the offsets that result if all experts are chosen equally often. For dry runs, which have
// no tokens: the host reads the offsets to size the experts' GEMMs and all-to-alls.
void write_balanced(const Tensor& offsets, int64_t choices, int64_t capacity, int64_t align) {
  const int64_t experts = offsets.numel() - 1;
  std::vector<int32_t> begins = {0};
  for (int64_t e = 0; e < experts; ++e) {
    int64_t rows = choices * (e + 1) / experts - choices * e / experts;
    if (capacity > 0) rows = std::min(rows, capacity);
    begins.push_back(begins.back() + static_cast<int32_t>((rows + align - 1) / align * align));
  }
  offsets.context().copy(offsets.view().data, begins.data(), offsets.view().bytes());
}

void check_route(const Tensor& x, const Tensor& w_gate, const RouterOptions& options) {
  constexpr const char* kOp = "moe_route";
  check_contiguous(kOp, "x", x);
  check_contiguous(kOp, "w_gate", w_gate);
  check_dtype(kOp, "w_gate", w_gate, x.dtype());
  if (x.ndim() != 2) throw ShapeError(cat(kOp, ": x is ", x.shape(), ", expected [N, C]"));
  check_shape(kOp, "w_gate", w_gate, {w_gate.size(0), x.size(1)});
  if (options.active < 1 || options.active > w_gate.size(0)) {
    throw ShapeError(
        cat(kOp, ": ", options.active, " experts are active, expected 1 to ", w_gate.size(0)));
  }
}

// The op's inputs are x and w_gate, its output the weights.
Grads route_backward(BackwardArgs& args, const Tensor& x, const Tensor& w_gate,
                     const Exec& step_exec, kernels::MoeRouteBwdArgs kernel) {
  Grads grads(2);
  const Tensor d_weights = args.dy();
  Tensor d_logits = empty(x.context(), {x.size(0), w_gate.size(0)}, DType::kF32);
  kernel.d_weights = d_weights;
  kernel.d_logits = d_logits;
  kernels::moe_route_bwd(step_exec, kernel);
  const Tensor d_low = x.dtype() == DType::kF32 ? d_logits : cast(d_logits, x.dtype());
  if (args.needs(0)) {
    grads[0] = empty_like(x);
    kernels::gemm(x.exec(), {.a = d_low, .b = w_gate, .c = grads[0]});
  }
  if (args.needs(1)) emit_weight_grad(args, 1, w_gate, grads, d_low, x);
  return grads;
}

// Records the backward of moe_route. `parts` is not a SavedTensor, because the caller may add the
// counts of other ranks to it before backward.
void record_route(const Tensor& x, const Tensor& w_gate, const Tensor& logits,
                  const RouterOptions& options, const CountsOfParts& parts, Routing& routing) {
  constexpr const char* kOp = "moe_route";
  record(kOp, {x, w_gate}, {&routing.weights},
         [x = SavedTensor(kOp, x), w_gate = SavedTensor(kOp, w_gate),
          logits = SavedTensor(kOp, logits), experts = SavedTensor(kOp, routing.experts),
          counts = parts.all, tokens = parts.tokens, step = StepHold(x.context()),
          options](BackwardArgs& args) {
           const Tensor in = x.get(), scores = logits.get(), chosen = experts.get();
           return route_backward(args, in, w_gate.get(), step.exec(in),
                                 {.logits = scores,
                                  .experts = chosen,
                                  .counts = counts,
                                  .rule = options.rule,
                                  .balance = options.balance_loss,
                                  .z = options.z_loss,
                                  .tokens = tokens});
         });
}

}  // namespace

Routing moe_route(const Tensor& x, const Tensor& w_gate, const Tensor& bias,
                  const RouterOptions& options, const Tensor& loads, const CountsOfParts& parts) {
  if (amp::wants_low({x, w_gate})) {
    return moe_route(amp::to_low(x), amp::to_low(w_gate), bias, options, loads, parts);
  }
  check_route(x, w_gate, options);
  Context& context = x.context();
  const int64_t N = x.size(0), E = w_gate.size(0), k = options.active;
  const int64_t align = alignment(N * k, E), capacity = capacity_of(options, N * k, E);
  CountsOfParts counted = parts;
  if (!parts.all.defined()) counted = {.all = empty(context, {1, E}, DType::kI32), .tokens = N};
  const Tensor logits = empty(context, {N, E}, DType::kF32);
  kernels::gemm(x.exec(), {.a = x, .b = transposed(w_gate), .c = logits});
  Routing routing{.weights = empty(context, {N, k}, DType::kF32),
                  .experts = empty(context, {N, k}, DType::kI32),
                  .counts = counted.all.alias({E}, {1}, counted.part * E),
                  .offsets = empty(context, {E + 1}, DType::kI32),
                  .rows = empty(context, {N, k}, DType::kI32),
                  .sources = empty(context, {kernels::moe_rows(N, k, E, align)}, DType::kI32),
                  .align = align};
  kernels::moe_route_fwd(x.exec(), {.logits = logits,
                                    .bias = bias.defined() ? bias.view() : View{},
                                    .weights = routing.weights,
                                    .experts = routing.experts,
                                    .rule = options.rule});
  kernels::moe_sort(x.exec(), {.experts = routing.experts,
                               .capacity = capacity,
                               .align = align,
                               .counts = routing.counts,
                               .offsets = routing.offsets,
                               .rows = routing.rows,
                               .sources = routing.sources,
                               .loads = loads.defined() ? loads.view() : View{}});
  if (kernels::DryRun::is_on()) write_balanced(routing.offsets, N * k, capacity, align);
  if (needs_grad(context, {x, w_gate})) {
    record_route(x, w_gate, logits, options, counted, routing);
  }
  return routing;
}

Tensor moe_permute(const Tensor& x, const Routing& routing) {
  constexpr const char* kOp = "moe_permute";
  check_contiguous(kOp, "x", x);
  Tensor y = empty(x.context(), {routing.sources.numel(), x.size(-1)}, x.dtype());
  kernels::moe_permute(
      x.exec(), {.x = x, .sources = routing.sources, .y = y, .active = routing.rows.size(1)});
  if (!needs_grad(x.context(), {x})) return y;
  record(kOp, {x}, {&y},
         [rows = SavedTensor(kOp, routing.rows), shape = x.shape()](BackwardArgs& args) {
           const Tensor dy = args.dy(), places = rows.get();
           Tensor dx = empty(dy.context(), shape, dy.dtype());
           kernels::moe_combine(dy.exec(), {.x = dy, .rows = places, .y = dx});
           return Grads{dx};
         });
  return y;
}

Tensor moe_combine(const Tensor& rows, const Routing& routing, const Tensor& residual) {
  constexpr const char* kOp = "moe_combine";
  if (residual.defined() && residual.dtype() != rows.dtype()) {
    return amp::add_residual(moe_combine(rows, routing), residual);
  }
  check_contiguous(kOp, "rows", rows);
  if (residual.defined()) check_contiguous(kOp, "residual", residual);
  const Tensor& weights = routing.weights;
  Tensor y = empty(rows.context(), {weights.size(0), rows.size(-1)}, rows.dtype());
  kernels::moe_combine(rows.exec(), {.x = rows,
                                     .rows = routing.rows,
                                     .weights = weights,
                                     .residual = residual.defined() ? residual.view() : View{},
                                     .y = y});
  if (!needs_grad(rows.context(), {rows, weights, residual})) return y;
  record(kOp, {rows, weights, residual}, {&y},
         [rows = SavedTensor(kOp, rows), weights = SavedTensor(kOp, weights),
          places = SavedTensor(kOp, routing.rows),
          sources = SavedTensor(kOp, routing.sources)](BackwardArgs& args) {
           Grads grads(3);
           const Tensor dy = args.dy(), by = weights.get();
           if (args.needs(0)) {
             const Tensor from = sources.get();
             grads[0] = empty(dy.context(), {from.numel(), dy.size(-1)}, dy.dtype());
             kernels::moe_permute(
                 dy.exec(),
                 {.x = dy, .sources = from, .weights = by, .y = grads[0], .active = by.size(1)});
           }
           if (args.needs(1)) {
             const Tensor results = rows.get(), at = places.get();
             grads[1] = empty_like(by);
             kernels::moe_dots(dy.exec(), {.x = dy, .y = results, .rows = at, .dots = grads[1]});
           }
           if (args.needs(2)) grads[2] = dy;
           return grads;
         });
  return y;
}

}  // namespace shale
