#pragma once

#include <cstdint>

#include "shale/kernels/moe.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Rule by which a router chooses experts and computes weights from its scores (kernels/moe.h).
using kernels::RouterRule;
// Function for scores: a softmax over all experts, or sigmoids (kernels/moe.h).
using kernels::RouterScore;

// Options of moe_route(). The ops of an MoE layer are: moe_route assigns tokens to rows of experts,
// moe_permute fills the rows, a grouped op (grouped_swiglu.h) processes them, moe_combine sums each
// token's results. There are N tokens of width C, E experts, k of them active per token, and R
// rows.
struct RouterOptions {
  int64_t active = 2;  // k: experts per token
  RouterRule rule = {};
  // Factors of two auxiliary losses per token. Only the gradients of these losses are computed, as
  // part of the gradient of the weights; no loss or evaluation contains their values. Like those of
  // cross_entropy_, the gradients include StepState::grad_scale and the loss scale.
  float balance_loss = 0;  // times E sum_e f_e P_e (arXiv:2101.03961), f_e = tokens of e / (k N)
  float z_loss = 0;        // times log(sum_e exp(logit_e))^2 (arXiv:2202.08906)
  // Maximum number of rows of an expert, as a multiple of k N / E, rounded up. Later tokens of the
  // batch are dropped. 0: no limit.
  double capacity_factor = 0;
};

// Counts of tokens per expert for the balance loss, if this call routes only a part of the tokens
// over which the loss is computed.
struct CountsOfParts {
  // [P, E] i32: moe_route writes row `part`. Before backward the caller must add the counts of
  // other ranks to any row.
  Tensor all = {};
  int64_t part = 0;
  int64_t tokens = 0;  // total number of tokens, over all parts and ranks
};

// Result of moe_route: the experts of each token and their rows.
struct Routing {
  Tensor weights;  // [N, k] f32: weight of each expert in a token's result; differentiable
  Tensor experts;  // [N, k] i32: experts of each token
  Tensor counts;   // [E] i32: number of tokens that chose each expert, including dropped ones
  Tensor offsets;  // [E + 1] i32: first row of each expert
  Tensor rows;     // [N, k] i32: row of each token for each of its experts; -1: dropped
  // [R] i32: token * k + index among the token's experts, for each row; -1: padding row
  Tensor sources;
  int64_t align = 1;  // alignment: all offsets are multiples of it
};

// Computes logits x w_gateᵀ in f32 and chooses experts. Rows are in the order of (expert, token),
// which does not depend on the number of threads. Throws ShapeError, DTypeError. Keeps x and the
// logits.
//
// - x: [N, C], contiguous; w_gate: [E, C], same dtype.
// - bias: [E] f32, optional. It is added to the scores when experts are chosen, but not to their
//   weights.
// - loads: [E + 1] i32, optional. Adds the counts and, at the end, the number of dropped choices to
//   it.
// - parts: optional. Without it, f_e of the balance loss counts only the tokens of x.
Routing moe_route(const Tensor& x, const Tensor& w_gate, const Tensor& bias,
                  const RouterOptions& options, const Tensor& loads = {},
                  const CountsOfParts& parts = {});
// Returns the rows of all experts, [R, C], in x's dtype; unused rows are 0. x: [N, C].
Tensor moe_permute(const Tensor& x, const Routing& routing);
// Returns residual + the sum of weight * row over each token's experts, in their order, in f32: [N,
// C]. rows: [R, C]; residual: [N, C], optional, same dtype as rows. Keeps rows.
Tensor moe_combine(const Tensor& rows, const Routing& routing, const Tensor& residual = {});

}  // namespace shale
