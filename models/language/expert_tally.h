#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/models/training/report/metrics.h"
#include "shale/models/training/step_tally.h"
#include "shale/runtime/nn/moe.h"

namespace shale::models {

// Returns the MoE layers in a tree of modules, in order.
std::vector<nn::MoE*> mixtures_of(Module& root);

// Counts the tokens of each expert in each MoE layer, and updates router biases (arXiv:2408.15664;
// DeepSeek-V3, arXiv:2412.19437, section 2.1.2). After each step, a bias rises by `bias_rate` if
// its expert had fewer tokens than the mean of its layer, and falls by `bias_rate` if it had more.
// The MoE layers count tokens while this object exists, and must outlive it.
class ExpertTally : public StepTally {
 public:
  // models: equal models of the mesh ranks in this process, which share the counters. bias_rate: 0
  // means no router biases. Throws ConfigError unless all MoE layers have the same number of
  // experts.
  ExpertTally(const std::vector<Module*>& models, Context& context, float bias_rate);
  ~ExpertTally() override;
  const Tensor& counts() const override { return loads_; }  // numbers of tokens, [L, E + 1]
  void summed() override;
  const Tensor& bias() const { return bias_; }  // router biases, [L, E] f32; undefined: none

 private:
  std::vector<nn::MoE*> mixtures_;
  Tensor loads_, bias_;
  float bias_rate_;
};

// Converts counts [L, E + 1] to metrics.
ExpertMetrics expert_metrics(const std::vector<int32_t>& counts, int64_t experts);

}  // namespace shale::models
