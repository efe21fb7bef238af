#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

// Mixture of experts (MoE): a router assigns k of E experts to each of N tokens. The rows of each
// expert are consecutive, in order of experts, for grouped GEMMs (grouped_gemm.h).
namespace shale::kernels {

enum class RouterScore : uint8_t {
  kSoftmax,  // softmax of a token's logits over all experts
  kSigmoid,  // sigmoid of each logit (DeepSeek-V3, arXiv:2412.19437, equations 12 to 16)
};

// How a router derives choices and weights from its scores.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  bool renormalise = false;  // divide the weights of the chosen experts by their sum
  float scale = 1;           // factor of the weights, applied last
  // Number of groups of consecutive experts. Only experts of the best `active_groups` groups, by
  // the sum of a group's two largest scores, can be chosen.
  int64_t groups = 1;
  int64_t active_groups = 1;
};

// Chooses for each token the k experts with the largest score + bias, in descending order; the
// lower expert index wins ties. weights come from the scores without the bias.
struct MoeRouteFwdArgs {
  View logits;   // [N, E] f32, contiguous
  View bias{};   // [E] f32; optional
  View weights;  // [N, k] f32, contiguous
  View experts;  // [N, k] i32, contiguous
  RouterRule rule{};
};

// d_logits = gradient of sum(weights * d_weights) and of two auxiliary losses, times the step's
// grad_scale and loss scale, as if summed over the tokens:
//   balance: E sum_e f_e P_e per token, f_e = the sum of counts[:, e] / (k tokens), P_e the mean of
//     the softmax; f carries no gradient (arXiv:2101.03961, equation 4). With kSoftmax only.
//   z: log(sum_e exp(logits_e))^2 per token (arXiv:2202.08906, equation 5)
struct MoeRouteBwdArgs {
  View logits;     // [N, E] f32, contiguous
  View experts;    // [N, k] i32, as forward chose them
  View counts{};   // [P, E] i32: partial counts of choices per expert; required if balance != 0
  View d_weights;  // [N, k] f32, contiguous
  View d_logits;   // [N, E] f32, contiguous
  RouterRule rule{};
  float balance = 0;  // factor of the balance loss, and of the z loss
  float z = 0;
  int64_t tokens = 0;  // number of tokens in `counts`; 0: N
};

// Assigns a row to each choice of a token, (token, slot) with slot from 0 to k - 1. Rows are sorted
// by (expert, token). The rows of each expert begin at a multiple of `align`; the padding rows in
// between have no token.
struct MoeSortArgs {
  View experts;          // [N, k] i32, distinct for each token
  int64_t capacity = 0;  // maximum rows per expert; later tokens are dropped; 0: no limit
  int64_t align = 1;     // a power of two
  View counts;           // [E] i32: tokens that chose the expert, including dropped ones
  View offsets;          // [E + 1] i32: first row of each expert
  View rows;             // [N, k] i32: -1 if dropped
  View sources;          // [R] i32, R = moe_rows(...): token * k + slot, or -1 for padding
  View loads{};  // [E + 1] i32; optional: adds the counts, and the number of dropped choices
};
// Returns a number of rows that is enough for any choice of experts.
int64_t moe_rows(int64_t tokens, int64_t active, int64_t experts, int64_t align);

// Adjusts router biases by the sign of the deviation of their experts' loads (arXiv:2408.15664,
// algorithm 1):
//   bias[l, e] += rate * sign(mean of loads[l, :E] - loads[l, e]), where the mean is not rounded
struct MoeBalanceArgs {
  View loads;  // [L, E + 1] i32, as in MoeSortArgs
  View bias;   // [L, E] f32: router biases of L layers
  float rate = 0;
};

// y[r] = weights[source of r] * x[token of r], or x[token] without weights; 0 in padding rows.
struct MoePermuteArgs {
  View x;              // [N, C] f32, bf16 or f16, contiguous
  View sources;        // [R] i32: as in MoeSortArgs
  View weights{};      // [N, k] f32; optional
  View y;              // [R, C], like x
  int64_t active = 1;  // k: experts per token
};

// y[n] = residual[n] + sum over slots j, in order, of weights[n, j] * x[rows[n, j]]; in f32,
// rounded once. Dropped slots add nothing.
struct MoeCombineArgs {
  View x;           // [R, C] f32, bf16 or f16, contiguous
  View rows;        // [N, k] i32: as in MoeSortArgs
  View weights{};   // [N, k] f32; optional
  View residual{};  // [N, C], like x; optional
  View y;           // [N, C], like x
};

// dots[n, j] = sum over c of x[n, c] * y[rows[n, j], c]; 0 for dropped slots.
struct MoeDotsArgs {
  View x;     // [N, C] f32, bf16 or f16, contiguous
  View y;     // [R, C], like x
  View rows;  // [N, k] i32: as in MoeSortArgs
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
