#include <algorithm>
#include <bit>

#include "shale/base/gpu_model.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/moe.h"
#include "shale/kernels/simt/simt.h"

// The MoE router. A warp owns a token; the token's scores are in shared memory, and a lane has
// every 32nd expert.
//
// N, E, k: tokens, experts, experts per token.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kWarps = 4;  // warps per block
constexpr int kThreads = kWarps * kWarpSize;
// three arrays of this size for each warp of a block take 96 KiB
constexpr int64_t kMostExperts = 2048;
constexpr float kLeastSum = 1e-20f;     // added to a sum of sigmoids, as in DeepSeek-V3

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}

struct RowSums {
  float top, sum;  // top: maximum of the logits; sum: sum of exp(logit - top)

  __device__ __forceinline__ float share(float logit) const { return expf(logit - top) / sum; }
  __device__ __forceinline__ float log_sum() const { return top + logf(sum); }
};

__device__ __forceinline__ RowSums sums_of(const float* logits, int E) {
  RowSums row{.top = -INFINITY, .sum = 0};
  for (int e = lane_id(); e < E; e += kWarpSize) row.top = fmaxf(row.top, logits[e]);
  row.top = warp_max(row.top);
  for (int e = lane_id(); e < E; e += kWarpSize) row.sum += expf(logits[e] - row.top);
  row.sum = warp_sum(row.sum);
  return row;
}

__device__ __forceinline__ float sigmoid(float x) {
  return 1.f / (1.f + expf(-x));
}

// Returns the factor by which the scores of the chosen experts are multiplied to give their
// weights. `sum`: the sum of the chosen experts' scores.
__device__ __forceinline__ float factor_of(const RouterRule& rule, float sum) {
  if (!rule.renormalise) return rule.scale;
  return rule.scale / (rule.score == RouterScore::kSigmoid ? sum + kLeastSum : sum);
}

// ---- Forward ----

struct RouteFwd {
  const float* logits;
  const float* bias;  // null: no bias
  float* weights;
  int32_t* experts;
  int64_t tokens;
  int E, k;
  RouterRule rule;
};

// A warp's shared memory.
struct RouteMemory {
  float* scores;    // [E]: one per expert
  uint32_t* keys;   // [E], see key_of()
  float* groups;    // [groups]; shares memory with `chosen`
  int32_t* chosen;  // [k]: chosen experts

  __device__ __forceinline__ explicit RouteMemory(int E) {
    float* const first = dynamic_shared<float>() + threadIdx.x / kWarpSize * 3 * E;
    scores = first;
    keys = reinterpret_cast<uint32_t*>(first + E);
    groups = first + 2 * E;
    chosen = reinterpret_cast<int32_t*>(groups);
  }
};

constexpr uint32_t kTaken = 0;  // key of a chosen expert; smaller than any float's key

// Returns a key that increases with the float. NaN has a key too, so a token's experts are always
// distinct.
__device__ __forceinline__ uint32_t key_of(float choice) {
  const uint32_t bits = std::bit_cast<uint32_t>(choice + 0.f);  // makes -0 and 0 equal
  const uint32_t key = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return key == kTaken ? 1 : key;
}
__device__ __forceinline__ float choice_of(uint32_t key) {
  return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// Sets the scores of experts outside the best groups to -inf. Among equal groups the lower index
// wins.
__device__ __forceinline__ void mask_groups(const RouterRule& rule, const RouteMemory& own, int E) {
  const int groups = static_cast<int>(rule.groups), size = E / groups;
  for (int g = lane_id(); g < groups; g += kWarpSize) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float value = choice_of(own.keys[e]);
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
    own.groups[g] = size > 1 ? first + second : first;
  }
  __syncwarp();
  for (int g = lane_id(); g < groups; g += kWarpSize) {
    const float mine = own.groups[g];
    int better = 0;
    for (int other = 0; other < groups; ++other) {
      const float theirs = own.groups[other];
      better += theirs > mine || (theirs == mine && other < g) ? 1 : 0;
    }
    if (better < rule.active_groups) continue;
    for (int e = g * size; e < (g + 1) * size; ++e) own.keys[e] = key_of(-INFINITY);
  }
  __syncwarp();
}

// Chooses the k experts with the largest keys for a warp's token.
__device__ __forceinline__ void choose(const RouteMemory& own, int E, int k) {
  for (int j = 0; j < k; ++j) {
    uint64_t best = 0;
    for (int e = lane_id(); e < E; e += kWarpSize) {
      const uint32_t key = own.keys[e];
      // Among equal keys the expert with the lower index ranks higher.
      const uint64_t rank = uint64_t{key} << 32 | static_cast<uint32_t>(~e);
      if (key != kTaken && rank > best) best = rank;
    }
    const int expert = static_cast<int>(~static_cast<uint32_t>(warp_max(best)));
    if (lane_id() == expert % kWarpSize) own.keys[expert] = kTaken;
    if (lane_id() == 0) own.chosen[j] = expert;
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kThreads) route_fwd_kernel(const RouteFwd a) {
  await_previous_grid();
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (token >= a.tokens) return;
  const RouteMemory own(a.E);
  const float* const logits = a.logits + token * a.E;
  const bool is_softmax = a.rule.score == RouterScore::kSoftmax;
  RowSums row{};
  if (is_softmax) row = sums_of(logits, a.E);
  for (int e = lane_id(); e < a.E; e += kWarpSize) {
    const float score = is_softmax ? row.share(logits[e]) : sigmoid(logits[e]);
    own.scores[e] = score;
    own.keys[e] = key_of(score + (a.bias != nullptr ? a.bias[e] : 0.f));
  }
  __syncwarp();
  if (a.rule.active_groups != a.rule.groups) mask_groups(a.rule, own, a.E);
  choose(own, a.E, a.k);
  float sum = 0;
  for (int j = 0; j < a.k; ++j) sum += own.scores[own.chosen[j]];
  const float factor = factor_of(a.rule, sum);
  for (int j = lane_id(); j < a.k; j += kWarpSize) {
    const int expert = own.chosen[j];
    a.experts[token * a.k + j] = expert;
    a.weights[token * a.k + j] = own.scores[expert] * factor;
  }
}

// ---- Backward ----

struct RouteBwd {
  const float* logits;
  const int32_t* experts;
  const int32_t* counts;  // [parts, E]; used if balance != 0
  const float* d_weights;
  float* d_logits;
  const StepState* step;  // used if balance or z != 0
  int64_t tokens;
  int E, k, parts;
  RouterRule rule;
  float balance, z;  // balance: factor of the balance loss * E / (k * counted tokens)

  __device__ __forceinline__ float balance_of(int e, float scale) const {
    if (balance == 0) return 0.f;
    int32_t count = 0;
    for (int p = 0; p < parts; ++p) count += counts[p * E + e];
    return balance * scale * static_cast<float>(count);
  }
};

// Adds the gradient of sum(weights * d_weights) with respect to the scores.
__device__ __forceinline__ void add_weight_gradient(const RouterRule& rule, const float* scores,
                                                    const int32_t* experts, const float* d_weights,
                                                    int k, float* d_scores) {
  float sum = 0, dot = 0;
  for (int j = 0; j < k; ++j) {
    const float score = scores[experts[j]];
    sum += score, dot += d_weights[j] * score;
  }
  const float factor = factor_of(rule, sum);
  // The weights are divided by the sum of the scores; `shared` is the part of the gradient that
  // comes through this sum.
  const float shared = rule.renormalise && rule.scale != 0 ? dot * factor / rule.scale : 0.f;
  for (int j = lane_id(); j < k; j += kWarpSize) {
    d_scores[experts[j]] += factor * (d_weights[j] - shared);
  }
}

__global__ void __launch_bounds__(kThreads) route_bwd_kernel(const RouteBwd a) {
  await_previous_grid();
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (token >= a.tokens) return;
  const bool is_softmax = a.rule.score == RouterScore::kSoftmax, has_z = a.z != 0;
  const float scale = a.step == nullptr ? 0.f : a.step->grad_scale * a.step->loss_scale.value;
  float* const scores = dynamic_shared<float>() + threadIdx.x / kWarpSize * 2 * a.E;
  float* const d_scores = scores + a.E;
  const float* const logits = a.logits + token * a.E;
  RowSums row{};
  if (is_softmax || has_z) row = sums_of(logits, a.E);
  for (int e = lane_id(); e < a.E; e += kWarpSize) {
    scores[e] = is_softmax ? row.share(logits[e]) : sigmoid(logits[e]);
    d_scores[e] = a.balance_of(e, scale);
  }
  __syncwarp();
  add_weight_gradient(a.rule, scores, a.experts + token * a.k, a.d_weights + token * a.k, a.k,
                      d_scores);
  __syncwarp();
  float dot = 0;
  for (int e = lane_id(); e < a.E; e += kWarpSize) dot += d_scores[e] * scores[e];
  dot = warp_sum(dot);
  const float z = has_z ? 2.f * a.z * scale * row.log_sum() : 0.f;
  for (int e = lane_id(); e < a.E; e += kWarpSize) {
    const float p = scores[e];
    float d = is_softmax ? p * (d_scores[e] - dot) : d_scores[e] * p * (1.f - p);
    if (has_z) d += z * (is_softmax ? p : row.share(logits[e]));
    a.d_logits[token * a.E + e] = d;
  }
}

// ---- Host side ----

constexpr int64_t kArraysOfForward = 3;  // arrays of E numbers per token; backward has fewer

size_t shared_bytes(int64_t arrays, int64_t experts) {
  return static_cast<size_t>(kWarps * arrays * experts) * sizeof(float);
}

void check_experts(const char* op, const Exec& exec, int64_t experts) {
  const size_t room = gpu_model(exec.device.arch).block_shared_bytes;
  const int64_t most =
      std::min(kMostExperts, static_cast<int64_t>(room / shared_bytes(kArraysOfForward, 1)));
  if (experts <= most) return;
  throw ShapeError(
      cat(op, ": there are ", experts, " experts, expected at most ", most, " on ", exec.device));
}

}  // namespace

template <>
void run(const Exec& exec, const MoeRouteFwdArgs& a) {
  const int64_t N = a.logits.size(0), E = a.logits.size(1);
  check_experts("moe_route_fwd", exec, E);
  if (N == 0) return;
  simt::launch(route_fwd_kernel,
               {.grid = ceil_div(N, kWarps),
                .block = kThreads,
                .smem_bytes = shared_bytes(kArraysOfForward, E)},
               exec,
               RouteFwd{.logits = a.logits.as<float>(),
                        .bias = a.bias.defined() ? a.bias.as<float>() : nullptr,
                        .weights = a.weights.as<float>(),
                        .experts = a.experts.as<int32_t>(),
                        .tokens = N,
                        .E = static_cast<int>(E),
                        .k = static_cast<int>(a.experts.size(1)),
                        .rule = a.rule});
}

template <>
void run(const Exec& exec, const MoeRouteBwdArgs& a) {
  constexpr const char* kOp = "moe_route_bwd";
  const int64_t N = a.logits.size(0), E = a.logits.size(1), k = a.experts.size(1);
  check_experts(kOp, exec, E);
  if (N == 0) return;
  const bool has_losses = a.balance != 0 || a.z != 0;
  const float balance = a.balance * static_cast<float>(E);
  const float tokens = static_cast<float>(a.tokens > 0 ? a.tokens : N);
  simt::launch(route_bwd_kernel,
               {.grid = ceil_div(N, kWarps), .block = kThreads, .smem_bytes = shared_bytes(2, E)},
               exec,
               RouteBwd{.logits = a.logits.as<float>(),
                        .experts = a.experts.as<int32_t>(),
                        .counts = a.balance != 0 ? a.counts.as<int32_t>() : nullptr,
                        .d_weights = a.d_weights.as<float>(),
                        .d_logits = a.d_logits.as<float>(),
                        .step = has_losses ? &step_of(kOp, exec) : nullptr,
                        .tokens = N,
                        .E = static_cast<int>(E),
                        .k = static_cast<int>(k),
                        .parts = a.balance != 0 ? static_cast<int>(a.counts.size(0)) : 0,
                        .rule = a.rule,
                        .balance = balance / (static_cast<float>(k) * tokens),
                        .z = a.z});
}

}  // namespace shale::kernels::SHALE_BACKEND
