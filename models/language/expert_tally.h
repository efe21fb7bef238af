#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/models/training/report/metrics.h"
#include "shale/models/training/step_tally.h"
#include "shale/runtime/nn/moe.h"

namespace shale::models {

// The mixtures of experts in a tree of modules, in order.
std::vector<nn::MoE*> mixtures_of(Module& root);

// Tokens of each expert of each mixture, and how the biases of routers follow them
// (arXiv:2408.15664; DeepSeek-V3, arXiv:2412.19437, section 2.1.2): after each step a bias rises by
// `bias_rate` where an expert had fewer tokens than the mean of its layer, and falls where it had
// more. While it lives, the mixtures, which outlive it, count.
class ExpertTally : public StepTally {
 public:
  // models: of the mesh ranks of a process, alike, which count together. bias_rate 0: routers have
  // no bias. Throws ConfigError unless all mixtures have equally many experts.
  ExpertTally(const std::vector<Module*>& models, Context& context, float bias_rate);
  ~ExpertTally() override;
  const Tensor& counts() const override { return loads_; }  // [L, E + 1]
  void summed() override;
  const Tensor& bias() const { return bias_; }  // [L, E] f32; undefined: none

 private:
  std::vector<nn::MoE*> mixtures_;
  Tensor loads_, bias_;
  float bias_rate_;
};

// What metrics say of counts, which are [L, E + 1].
ExpertMetrics expert_metrics(const std::vector<int32_t>& counts, int64_t experts);

}  // namespace shale::models
