#pragma once

#include <cstdint>

#include "shale/kernels/moe.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// How a router makes choices and weights of its scores (kernels/moe.h).
using kernels::RouterRule;
// What its scores are: a softmax over all experts, or sigmoids (kernels/moe.h).
using kernels::RouterScore;

// A mixture of experts, op by op: moe_route says which rows of which experts a token has,
// moe_permute fills the rows, an op by groups (grouped_swiglu.h) goes over them, moe_combine adds
// up a token's results. N tokens of width C, E experts, k of them active for each token, R rows.
struct RouterOptions {
  int64_t active = 2;  // k
  RouterRule rule = {};
  // Factors of two losses of a token each, whose gradients ride on that of the weights; no loss has
  // their values, and neither has an evaluation. As that of cross_entropy_, these gradients carry
  // StepState::grad_scale and the loss scale.
  float balance_loss = 0;  // E sum_e f_e P_e (arXiv:2101.03961), f_e = tokens of e / (k N)
  float z_loss = 0;        // log(sum_e exp(logit_e))^2 (arXiv:2202.08906)
  // Rows that an expert has at most, as a multiple of k N / E, rounded up; what comes later in the
  // batch is dropped. 0: no limit.
  double capacity_factor = 0;
};

// Where tokens are one of several parts of those whose experts a balance loss weighs.
struct CountsOfParts {
  // [P, E] i32: moe_route fills row `part`. Whoever calls it adds what other ranks count, to any
  // row, before backward.
  Tensor all = {};
  int64_t part = 0;
  int64_t tokens = 0;  // of all parts, on all ranks
};

// What moe_route found for each token, and where its rows are.
struct Routing {
  Tensor weights;  // [N, k] f32, differentiable
  Tensor experts;  // [N, k] i32
  Tensor counts;   // [E] i32: tokens that chose the expert, dropped ones too
  Tensor offsets;  // [E + 1] i32: where the rows of an expert begin
  Tensor rows;     // [N, k] i32: a token's row in each of its experts; -1: dropped
  Tensor sources;  // [R] i32: token * k + slot of a row; -1: nobody's
  int64_t align = 1;  // divides all offsets
};

// Logits x w_gateᵀ in f32, and what they choose. Rows are in order of (expert, token), whatever
// the number of threads. x: [N, C], contiguous; w_gate: [E, C], like x; bias: [E] f32, optional,
// added to scores for the choice alone; loads: [E + 1] i32, optional: counts are added there, then
// the choices that were dropped; parts: optional: x is all that f_e is of. Throws ShapeError,
// DTypeError. Keeps x and the logits.
Routing moe_route(const Tensor& x, const Tensor& w_gate, const Tensor& bias,
                  const RouterOptions& options, const Tensor& loads = {},
                  const CountsOfParts& parts = {});
// The rows of all experts, [R, C], in x's dtype; those of nobody are 0. x: [N, C].
Tensor moe_permute(const Tensor& x, const Routing& routing);
// residual + sum of weight * row over a token's experts, in f32, in their order: [N, C]. rows:
// [R, C]; residual: [N, C], like rows, optional. Keeps rows.
Tensor moe_combine(const Tensor& rows, const Routing& routing, const Tensor& residual = {});

}  // namespace shale
