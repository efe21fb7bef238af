#include "shale/models/language/expert_tally.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/kernels/moe.h"

namespace shale::models {

std::vector<nn::MoE*> mixtures_of(Module& root) {
  std::vector<nn::MoE*> mixtures;
  if (auto* const mixture = dynamic_cast<nn::MoE*>(&root)) mixtures.push_back(mixture);
  for (Module* child : root.children()) {
    const std::vector<nn::MoE*> inside = mixtures_of(*child);
    mixtures.insert(mixtures.end(), inside.begin(), inside.end());
  }
  return mixtures;
}

ExpertTally::ExpertTally(const std::vector<Module*>& models, Context& context, float bias_rate)
    : bias_rate_(bias_rate) {
  for (Module* model : models) {
    for (nn::MoE* mixture : mixtures_of(*model)) mixtures_.push_back(mixture);
  }
  const int64_t L = std::ssize(mixtures_) / std::ssize(models);
  const int64_t E = L == 0 ? 0 : mixtures_.front()->expert_count();
  for (const nn::MoE* mixture : mixtures_) {
    if (mixture->expert_count() == E) continue;
    throw ConfigError(cat("experts: ", mixture->full_name(), " has ", mixture->expert_count(),
                          " experts, expected ", E, " as in the first MoE layer"));
  }
  loads_ = zeros(context, {L, E + 1}, DType::kI32);
  if (bias_rate > 0) bias_ = zeros(context, {L, E}, DType::kF32);
  for (size_t i = 0; i < mixtures_.size(); ++i) {
    const int64_t l = static_cast<int64_t>(i) % L;
    mixtures_[i]->count_loads(loads_.alias({E + 1}, {1}, l * (E + 1)),
                              bias_.defined() ? bias_.alias({E}, {1}, l * E) : Tensor());
  }
}

ExpertTally::~ExpertTally() {
  for (nn::MoE* mixture : mixtures_) mixture->count_loads({}, {});
}

void ExpertTally::summed() {
  if (!bias_.defined()) return;
  kernels::moe_balance(bias_.exec(), {.loads = loads_, .bias = bias_, .rate = bias_rate_});
}

ExpertMetrics expert_metrics(const std::vector<int32_t>& counts, int64_t experts) {
  ExpertMetrics metrics;
  const auto row = static_cast<size_t>(experts + 1), layers = counts.size() / row;
  int64_t tokens = 0, dropped = 0;
  int32_t least = counts.front(), most = least;
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto first = counts.begin() + static_cast<std::ptrdiff_t>(layer * row);
    for (auto count = first; count != first + experts; ++count) {
      least = std::min(least, *count), most = std::max(most, *count);
      tokens += *count;
    }
    dropped += first[experts];
  }
  metrics.tokens_min = static_cast<double>(least);
  metrics.tokens_max = static_cast<double>(most);
  metrics.tokens_mean = static_cast<double>(tokens) / static_cast<double>(layers * (row - 1));
  metrics.dropped_share =
      tokens == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(tokens);
  return metrics;
}

}  // namespace shale::models
