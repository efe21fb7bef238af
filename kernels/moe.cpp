#include "shale/kernels/moe.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_rule(const char* op, const RouterRule& rule, int64_t experts, int64_t active) {
  if (active < 1 || active > experts) {
    throw ShapeError(cat(op, ": ", active, " experts are active, expected 1 to ", experts));
  }
  const int64_t groups = rule.groups;
  if (groups < 1 || experts % groups != 0 || rule.active_groups < 1 ||
      rule.active_groups > groups || rule.active_groups * (experts / groups) < active) {
    throw ShapeError(cat(op, ": ", rule.active_groups, " of the ", groups, " groups of ", experts,
                         " experts are active, expected groups of equal size, and at least ",
                         active, " experts in the active groups"));
  }
}

// Checks the router's logits and returns their shape [N, E].
Shape check_logits(const char* op, const View& logits) {
  if (logits.ndim() != 2) throw ShapeError(cat(op, ": logits is ", logits, ", expected [N, E]"));
  check_dense(op, "logits", logits, logits.shape, DType::kF32);
  return logits.shape;
}

void check_matrix(const char* op, const char* name, const View& x) {
  check_dtype(op, name, x, kComputeDTypes);
  check_contiguous(op, name, x);
  if (x.ndim() != 2) throw ShapeError(cat(op, ": ", name, " is ", x, ", expected two dimensions"));
}

// Checks an i32 [N, k] argument that holds experts or rows.
void check_choices(const char* op, const char* name, const View& x, int64_t tokens) {
  if (x.ndim() != 2 || x.size(0) != tokens) {
    throw ShapeError(cat(op, ": ", name, " is ", x, ", expected [", tokens, ",k]"));
  }
  check_dense(op, name, x, x.shape, DType::kI32);
}

}  // namespace

int64_t moe_rows(int64_t tokens, int64_t active, int64_t experts, int64_t align) {
  return (tokens * active + experts * (align - 1)) / align * align;
}

void check_args(const MoeRouteFwdArgs& a) {
  constexpr const char* kOp = "moe_route_fwd";
  const Shape shape = check_logits(kOp, a.logits);
  check_choices(kOp, "experts", a.experts, shape[0]);
  check_rule(kOp, a.rule, shape[1], a.experts.size(1));
  check_dense(kOp, "weights", a.weights, a.experts.shape, DType::kF32);
  if (a.bias.defined()) check_dense(kOp, "bias", a.bias, {shape[1]}, DType::kF32);
}

void check_args(const MoeRouteBwdArgs& a) {
  constexpr const char* kOp = "moe_route_bwd";
  const Shape shape = check_logits(kOp, a.logits);
  check_choices(kOp, "experts", a.experts, shape[0]);
  check_rule(kOp, a.rule, shape[1], a.experts.size(1));
  check_dense(kOp, "d_weights", a.d_weights, a.experts.shape, DType::kF32);
  check_dense(kOp, "d_logits", a.d_logits, shape, DType::kF32);
  if (a.balance == 0) return;
  if (a.counts.ndim() != 2) {
    throw ShapeError(
        cat(kOp, ": counts is ", a.counts, ", expected partial counts [P,", shape[1], "]"));
  }
  check_dense(kOp, "counts", a.counts, {a.counts.size(0), shape[1]}, DType::kI32);
  if (a.rule.score != RouterScore::kSoftmax) {
    throw ShapeError(cat(kOp, ": a load-balancing loss needs a softmax router, found sigmoid"));
  }
}

void check_args(const MoeSortArgs& a) {
  constexpr const char* kOp = "moe_sort";
  check_choices(kOp, "experts", a.experts, a.experts.size(0));
  check_dense(kOp, "counts", a.counts, {a.counts.numel()}, DType::kI32);
  const int64_t E = a.counts.numel();
  check_dense(kOp, "offsets", a.offsets, {E + 1}, DType::kI32);
  check_dense(kOp, "rows", a.rows, a.experts.shape, DType::kI32);
  if (a.align < 1 || (a.align & (a.align - 1)) != 0 || a.capacity < 0) {
    throw ShapeError(
        cat(kOp, ": align is ", a.align, " and capacity is ", a.capacity,
            ", expected an align that is a power of two and a capacity of at least 0"));
  }
  const int64_t rows = moe_rows(a.experts.size(0), a.experts.size(1), E, a.align);
  if (rows > INT32_MAX) throw ShapeError(cat(kOp, ": ", rows, " rows, expected fewer than 2^31"));
  check_dense(kOp, "sources", a.sources, {rows}, DType::kI32);
  if (a.loads.defined()) check_dense(kOp, "loads", a.loads, {E + 1}, DType::kI32);
}

void check_args(const MoeBalanceArgs& a) {
  constexpr const char* kOp = "moe_balance";
  if (a.bias.ndim() != 2) throw ShapeError(cat(kOp, ": bias is ", a.bias, ", expected [L, E]"));
  check_dense(kOp, "bias", a.bias, a.bias.shape, DType::kF32);
  check_dense(kOp, "loads", a.loads, {a.bias.size(0), a.bias.size(1) + 1}, DType::kI32);
}

void check_args(const MoePermuteArgs& a) {
  constexpr const char* kOp = "moe_permute";
  check_matrix(kOp, "x", a.x);
  check_dense(kOp, "sources", a.sources, {a.sources.numel()}, DType::kI32);
  check_dense(kOp, "y", a.y, {a.sources.numel(), a.x.size(1)}, a.x.dtype);
  if (a.weights.defined()) {
    check_dense(kOp, "weights", a.weights, {a.x.size(0), a.active}, DType::kF32);
  }
}

void check_args(const MoeCombineArgs& a) {
  constexpr const char* kOp = "moe_combine";
  check_matrix(kOp, "x", a.x);
  check_choices(kOp, "rows", a.rows, a.rows.size(0));
  const Shape shape{a.rows.size(0), a.x.size(1)};
  check_dense(kOp, "y", a.y, shape, a.x.dtype);
  if (a.weights.defined()) check_dense(kOp, "weights", a.weights, a.rows.shape, DType::kF32);
  if (a.residual.defined()) check_dense(kOp, "residual", a.residual, shape, a.x.dtype);
}

void check_args(const MoeDotsArgs& a) {
  constexpr const char* kOp = "moe_dots";
  check_matrix(kOp, "x", a.x);
  check_matrix(kOp, "y", a.y);
  check_choices(kOp, "rows", a.rows, a.x.size(0));
  check_dense(kOp, "y", a.y, {a.y.size(0), a.x.size(1)}, a.x.dtype);
  check_dense(kOp, "dots", a.dots, a.rows.shape, DType::kF32);
}

}  // namespace shale::kernels
