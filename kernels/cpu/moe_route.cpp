#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/moe.h"

// The MoE router. A thread owns tokens. Sorting is serial: it touches 8 bytes per choice, while
// each row of a chosen expert has C elements.
//
// N, E, k: tokens, experts, experts per token.

namespace shale::kernels::cpu {
namespace {

constexpr int64_t kTokens = 32;      // tokens per chunk of work
constexpr float kLeastSum = 1e-20f;  // added to a sum of sigmoids, as in DeepSeek-V3

struct RowScores {
  std::vector<float> scores;  // [E]: one per expert
  float log_sum = 0;          // log of the sum of exponentials, for kSoftmax or if requested

  void compute(const float* logits, RouterScore score, bool wants_log_sum) {
    const size_t E = scores.size();
    const bool is_softmax = score == RouterScore::kSoftmax;
    if (is_softmax || wants_log_sum) {
      const float top = *std::max_element(logits, logits + E);
      float sum = 0;
      for (size_t e = 0; e < E; ++e) sum += scores[e] = std::exp(logits[e] - top);
      for (float& value : scores) value /= sum;
      log_sum = top + std::log(sum);
    }
    if (is_softmax) return;
    for (size_t e = 0; e < E; ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
  }
};

// Sets `choice` to -inf for experts outside the best groups. Among equal groups the lower index
// wins.
void mask_groups(const RouterRule& rule, std::vector<float>& choice) {
  if (rule.active_groups == rule.groups) return;
  const int64_t size = std::ssize(choice) / rule.groups;
  std::vector<float> sums(static_cast<size_t>(rule.groups));
  for (int64_t g = 0; g < rule.groups; ++g) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float value = choice[size_t(e)];
      second = std::max(second, std::min(first, value));
      first = std::max(first, value);
    }
    sums[size_t(g)] = size > 1 ? first + second : first;
  }
  for (int64_t g = 0; g < rule.groups; ++g) {
    int64_t better = 0;
    for (int64_t other = 0; other < rule.groups; ++other) {
      const float mine = sums[size_t(g)], theirs = sums[size_t(other)];
      better += theirs > mine || (theirs == mine && other < g);
    }
    if (better < rule.active_groups) continue;
    std::fill_n(choice.begin() + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

// Writes the indices of the k largest of `choice` to `experts`; they are k different experts even
// with NaN.
void choose(std::vector<float>& choice, std::vector<char>& taken, int64_t k, int32_t* experts) {
  std::fill(taken.begin(), taken.end(), 0);
  for (int64_t j = 0; j < k; ++j) {
    size_t best = choice.size();
    for (size_t e = 0; e < choice.size(); ++e) {
      if (taken[e]) continue;
      if (best == choice.size() || choice[e] > choice[best]) best = e;
    }
    taken[best] = 1;
    experts[j] = static_cast<int32_t>(best);
  }
}

// Returns the factor by which the scores of the chosen experts are multiplied to give their
// weights. `sum`: the sum of the chosen experts' scores.
float factor_of(const RouterRule& rule, float sum) {
  if (!rule.renormalise) return rule.scale;
  return rule.scale / (rule.score == RouterScore::kSigmoid ? sum + kLeastSum : sum);
}

void route_tokens(const MoeRouteFwdArgs& a, int64_t begin, int64_t end) {
  const int64_t E = a.logits.size(1), k = a.experts.size(1);
  const float* bias = a.bias.defined() ? a.bias.as<float>() : nullptr;
  RowScores row{.scores = std::vector<float>(static_cast<size_t>(E))};
  std::vector<float> choice(static_cast<size_t>(E));
  std::vector<char> taken(static_cast<size_t>(E));
  for (int64_t n = begin; n < end; ++n) {
    row.compute(a.logits.as<float>() + n * E, a.rule.score, false);
    for (size_t e = 0; e < choice.size(); ++e) {
      choice[e] = row.scores[e] + (bias != nullptr ? bias[e] : 0);
    }
    mask_groups(a.rule, choice);
    int32_t* experts = a.experts.as<int32_t>() + n * k;
    float* weights = a.weights.as<float>() + n * k;
    choose(choice, taken, k, experts);
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += weights[j] = row.scores[size_t(experts[j])];
    const float factor = factor_of(a.rule, sum);
    for (int64_t j = 0; j < k; ++j) weights[j] *= factor;
  }
}

// Adds the gradient of sum(weights * d_weights) with respect to the scores.
void add_weight_gradient(const RouterRule& rule, const std::vector<float>& scores,
                         const int32_t* experts, const float* d_weights, int64_t k,
                         std::vector<float>& d_scores) {
  float sum = 0, dot = 0;
  for (int64_t j = 0; j < k; ++j) {
    const float score = scores[size_t(experts[j])];
    sum += score, dot += d_weights[j] * score;
  }
  const float factor = factor_of(rule, sum);
  // The weights are divided by the sum of the scores; `shared` is the part of the gradient that
  // comes through this sum.
  const float shared = rule.renormalise && rule.scale != 0 ? dot * factor / rule.scale : 0;
  for (int64_t j = 0; j < k; ++j) d_scores[size_t(experts[j])] += factor * (d_weights[j] - shared);
}

// Returns the gradient of a token's balance loss with respect to its softmax probability of each
// expert, times `scale`.
std::vector<float> balance_of(const MoeRouteBwdArgs& a, float scale) {
  const int64_t E = a.logits.size(1);
  std::vector<float> shares(static_cast<size_t>(E));
  if (a.balance == 0) return shares;
  const int64_t tokens = a.tokens > 0 ? a.tokens : a.logits.size(0);
  const float factor = a.balance * scale * float(E) / (float(a.experts.size(1)) * float(tokens));
  for (int64_t e = 0; e < E; ++e) {
    int32_t sum = 0;
    for (int64_t p = 0; p < a.counts.size(0); ++p) sum += a.counts.as<int32_t>()[p * E + e];
    shares[size_t(e)] = factor * float(sum);
  }
  return shares;
}

void route_tokens_back(const MoeRouteBwdArgs& a, float step_scale, int64_t begin, int64_t end) {
  const int64_t E = a.logits.size(1), k = a.experts.size(1);
  const bool is_softmax = a.rule.score == RouterScore::kSoftmax;
  RowScores row{.scores = std::vector<float>(static_cast<size_t>(E))};
  std::vector<float> d_scores, shares(static_cast<size_t>(E));
  const std::vector<float> balance = balance_of(a, step_scale);
  for (int64_t n = begin; n < end; ++n) {
    const float* logits = a.logits.as<float>() + n * E;
    float* d_logits = a.d_logits.as<float>() + n * E;
    if (!is_softmax && a.z != 0) {
      row.compute(logits, RouterScore::kSoftmax, true);
      shares = row.scores;
    }
    row.compute(logits, a.rule.score, false);
    if (is_softmax) shares = row.scores;
    d_scores = balance;
    add_weight_gradient(a.rule, row.scores, a.experts.as<int32_t>() + n * k,
                        a.d_weights.as<float>() + n * k, k, d_scores);
    float dot = 0;
    for (size_t e = 0; e < d_scores.size(); ++e) dot += d_scores[e] * row.scores[e];
    const float z = 2 * a.z * step_scale * row.log_sum;
    for (size_t e = 0; e < d_scores.size(); ++e) {
      const float p = row.scores[e];
      d_logits[e] = is_softmax ? p * (d_scores[e] - dot) : d_scores[e] * p * (1 - p);
      if (a.z != 0) d_logits[e] += z * shares[e];
    }
  }
}

}  // namespace

template <>
void run(const Exec& exec, const MoeRouteFwdArgs& a) {
  parallel_for(exec, a.logits.size(0), kTokens,
               [&](int64_t begin, int64_t end) { route_tokens(a, begin, end); });
}

template <>
void run(const Exec& exec, const MoeRouteBwdArgs& a) {
  float scale = 0;
  if (a.balance != 0 || a.z != 0) {
    const StepState& step = step_of("moe_route_bwd", exec);
    scale = step.grad_scale * step.loss_scale.value;
  }
  parallel_for(exec, a.logits.size(0), kTokens,
               [&](int64_t begin, int64_t end) { route_tokens_back(a, scale, begin, end); });
}

template <>
void run(const Exec&, const MoeSortArgs& a) {
  if (DryRun::is_on()) return;
  const int64_t E = a.counts.numel(), choices = a.experts.numel();
  const int32_t* experts = a.experts.as<int32_t>();
  int32_t* counts = a.counts.as<int32_t>();
  int32_t* offsets = a.offsets.as<int32_t>();
  int32_t* rows = a.rows.as<int32_t>();
  int32_t* sources = a.sources.as<int32_t>();
  std::fill_n(counts, E, 0);
  for (int64_t i = 0; i < choices; ++i) {
    if (experts[i] < 0 || experts[i] >= E) {
      throw DataError(cat("moe_sort: expert ", experts[i], ", expected 0 to ", E - 1));
    }
    ++counts[experts[i]];
  }
  const int64_t most = a.capacity > 0 ? a.capacity : choices;
  offsets[0] = 0;
  for (int64_t e = 0; e < E; ++e) {
    const int64_t kept = std::min<int64_t>(counts[e], most);
    offsets[e + 1] = offsets[e] + static_cast<int32_t>((kept + a.align - 1) / a.align * a.align);
  }
  std::fill_n(sources, a.sources.numel(), -1);
  std::vector<int32_t> used(static_cast<size_t>(E));
  for (int64_t i = 0; i < choices; ++i) {
    const int32_t e = experts[i], place = used[size_t(e)]++;
    rows[i] = place < most ? offsets[e] + place : -1;
    if (rows[i] >= 0) sources[rows[i]] = static_cast<int32_t>(i);
  }
  if (!a.loads.defined()) return;
  int32_t* loads = a.loads.as<int32_t>();
  for (int64_t e = 0; e < E; ++e) {
    loads[e] += counts[e];
    loads[E] += static_cast<int32_t>(std::max<int64_t>(counts[e] - most, 0));
  }
}

template <>
void run(const Exec&, const MoeBalanceArgs& a) {
  const int64_t L = a.bias.size(0), E = a.bias.size(1);
  for (int64_t l = 0; l < L; ++l) {
    const int32_t* loads = a.loads.as<int32_t>() + l * (E + 1);
    const int64_t sum = std::accumulate(loads, loads + E, int64_t{0});
    for (int64_t e = 0; e < E; ++e) {
      const int64_t above = loads[e] * E - sum;
      if (above != 0) a.bias.as<float>()[l * E + e] += above < 0 ? a.rate : -a.rate;
    }
  }
}

}  // namespace shale::kernels::cpu
