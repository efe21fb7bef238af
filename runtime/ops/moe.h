#pragma once

#include <cstdint>

#include "shale/kernels/moe.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// How a router chooses experts and computes weights from its scores (kernels/moe.h).
using kernels::RouterRule;
// How scores are computed: a softmax over all experts, or sigmoids (kernels/moe.h).
using kernels::RouterScore;

// Ops of an MoE layer. moe_route assigns tokens to rows of experts, moe_permute fills the rows, a
// grouped op (grouped_swiglu.h) processes them, moe_combine sums each token's results. N tokens of
// width C, E experts, k of them active per token, R rows.
struct RouterOptions {
  int64_t active = 2;  // k: experts per token
  RouterRule rule = {};
  // Factors of two auxiliary losses per token. Only their gradients are computed, as part of the
  // gradient of the weights: no loss or evaluation contains their values. Like those of
  // cross_entropy_, these gradients include StepState::grad_scale and the loss scale.
  float balance_loss = 0;  // E sum_e f_e P_e (arXiv:2101.03961), f_e = tokens of e / (k N)
  float z_loss = 0;        // log(sum_e exp(logit_e))^2 (arXiv:2202.08906)
  // Maximum rows of an expert, as a multiple of k N / E, rounded up; later tokens of the batch are
  // dropped. 0: no limit.
  double capacity_factor = 0;
};

// Counts for a balance loss over tokens of which this call routes only a part.
struct CountsOfParts {
  // [P, E] i32: moe_route writes row `part`. Before backward the caller must add other ranks'
  // counts, in any row.
  Tensor all = {};
  int64_t part = 0;
  int64_t tokens = 0;  // number of tokens in all parts, on all ranks
};

// Result of moe_route: the experts of each token and their rows.
struct Routing {
  Tensor weights;  // [N, k] f32: weight of each expert in a token's result; differentiable
  Tensor experts;  // [N, k] i32: experts of each token
  Tensor counts;   // [E] i32: tokens that chose the expert, including dropped ones
  Tensor offsets;  // [E + 1] i32: first row of each expert
  Tensor rows;     // [N, k] i32: row of a token in each of its experts; -1: dropped
  Tensor sources;  // [R] i32: token * k + slot of each row; -1: padding row
  int64_t align = 1;  // all offsets are multiples of this
};

// Computes logits x w_gateᵀ in f32 and chooses experts. Rows are in order of (expert, token),
// independent of the number of threads. x: [N, C], contiguous; w_gate: [E, C], same dtype; bias:
// [E] f32, optional, added to the scores for the choice only; loads: [E + 1] i32, optional: the
// counts, then the number of dropped choices, are added to it; parts: optional; without it f_e
// counts only the tokens of x. Throws ShapeError, DTypeError. Keeps x and the logits.
Routing moe_route(const Tensor& x, const Tensor& w_gate, const Tensor& bias,
                  const RouterOptions& options, const Tensor& loads = {},
                  const CountsOfParts& parts = {});
// Rows of all experts, [R, C], in x's dtype; unused rows are 0. x: [N, C].
Tensor moe_permute(const Tensor& x, const Routing& routing);
// residual + sum of weight * row over a token's experts, in their order, in f32: [N, C]. rows: [R,
// C]; residual: [N, C], optional, same dtype as rows. Keeps rows.
Tensor moe_combine(const Tensor& rows, const Routing& routing, const Tensor& residual = {});

}  // namespace shale
