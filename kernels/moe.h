#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

// Mixtures of experts: a router gives each of N tokens k of E experts; rows of all experts lie one
// expert after the other, and grouped products (grouped_gemm.h) go over them.
namespace shale::kernels {

enum class RouterScore : uint8_t {
  kSoftmax,  // over all experts
  kSigmoid,  // of each expert alone (DeepSeek-V3, arXiv:2412.19437, equations 12 to 16)
};

// How a router makes choices and weights of its scores.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  bool renormalise = false;  // weights of the chosen experts are divided by their sum
  float scale = 1;           // of the weights, after that
  // Experts are in so many groups of consecutive ones; only those of the best `active_groups`
  // groups, by the sum of a group's two largest scores, can be chosen.
  int64_t groups = 1;
  int64_t active_groups = 1;
};

// For each token the k experts of the largest score + bias, in falling order; among equals the
// lower expert comes first. weights: of the scores without the bias.
struct MoeRouteFwdArgs {
  View logits;   // [N, E] f32, contiguous
  View bias{};   // [E] f32; optional
  View weights;  // [N, k] f32, contiguous
  View experts;  // [N, k] i32, contiguous
  RouterRule rule{};
};

// d_logits of sum(weights * d_weights), and of two losses, times the step's grad_scale and loss
// scale, as of a sum over the tokens:
//   balance: E sum_e f_e P_e a token, f_e = the sum of counts[:, e] / (k tokens), P_e the mean of
//     the softmax; f carries no gradient (arXiv:2101.03961, equation 4). With kSoftmax only.
//   z: log(sum_e exp(logits_e))^2 of a token (arXiv:2202.08906, equation 5)
struct MoeRouteBwdArgs {
  View logits;     // [N, E] f32, contiguous
  View experts;    // [N, k] i32, as forward chose them
  View counts{};   // [P, E] i32: tokens that chose each expert, in parts; with balance != 0 only
  View d_weights;  // [N, k] f32, contiguous
  View d_logits;   // [N, E] f32, contiguous
  RouterRule rule{};
  float balance = 0;  // factors of the losses
  float z = 0;
  int64_t tokens = 0;  // of which `counts` are; 0: N
};

// Gives each (token, slot) a row. Rows are sorted by (expert, token); an expert's begin at a
// multiple of `align`, and rows that make up that multiple belong to nobody.
struct MoeSortArgs {
  View experts;          // [N, k] i32, a token's all different
  int64_t capacity = 0;  // rows that an expert has at most: later tokens are dropped; 0: no limit
  int64_t align = 1;     // a power of two
  View counts;   // [E] i32: tokens that chose the expert, dropped ones too
  View offsets;  // [E + 1] i32: where the rows of an expert begin
  View rows;     // [N, k] i32: -1 if dropped
  View sources;  // [R] i32, R = moe_rows(...): token * k + slot, -1 of a row that is nobody's
  View loads{};  // [E + 1] i32; optional: counts are added, then the choices that were dropped
};
// Rows that are enough for any choice of experts.
int64_t moe_rows(int64_t tokens, int64_t active, int64_t experts, int64_t align);

// Moves biases of routers by the sign of their experts' loads (arXiv:2408.15664, algorithm 1):
//   bias[l, e] += rate * sign(mean of loads[l, :E] - loads[l, e]), the mean without rounding
struct MoeBalanceArgs {
  View loads;  // [L, E + 1] i32, as MoeSortArgs has them
  View bias;   // [L, E] f32
  float rate = 0;
};

// y[r] = weights[source of r] * x[token of r], or x[token] without weights; 0 in rows of nobody.
struct MoePermuteArgs {
  View x;          // [N, C] f32, bf16 or f16, contiguous
  View sources;    // [R] i32
  View weights{};  // [N, k] f32; optional
  View y;          // [R, C], like x
  int64_t active = 1;  // k
};

// y[n] = residual[n] + sum over slots j, in order, of weights[n, j] * x[rows[n, j]]; in f32,
// rounded once. Dropped ones add nothing.
struct MoeCombineArgs {
  View x;           // [R, C] f32, bf16 or f16, contiguous
  View rows;        // [N, k] i32
  View weights{};   // [N, k] f32; optional
  View residual{};  // [N, C], like x; optional
  View y;           // [N, C], like x
};

// dots[n, j] = sum over c of x[n, c] * y[rows[n, j], c]; 0 where dropped.
struct MoeDotsArgs {
  View x;     // [N, C] f32, bf16 or f16, contiguous
  View y;     // [R, C], like x
  View rows;  // [N, k] i32
  View dots;  // [N, k] f32
};

void check_args(const MoeRouteFwdArgs& a);
void check_args(const MoeRouteBwdArgs& a);
void check_args(const MoeSortArgs& a);
void check_args(const MoeBalanceArgs& a);
void check_args(const MoePermuteArgs& a);
void check_args(const MoeCombineArgs& a);
void check_args(const MoeDotsArgs& a);

inline Slot<MoeRouteFwdArgs> moe_route_fwd{"moe_route_fwd"};
inline Slot<MoeRouteBwdArgs> moe_route_bwd{"moe_route_bwd"};
inline Slot<MoeSortArgs> moe_sort{"moe_sort"};
inline Slot<MoeBalanceArgs> moe_balance{"moe_balance"};
inline Slot<MoePermuteArgs> moe_permute{"moe_permute"};
inline Slot<MoeCombineArgs> moe_combine{"moe_combine"};
inline Slot<MoeDotsArgs> moe_dots{"moe_dots"};

}  // namespace shale::kernels
