#pragma once

#include <vector>

#include "shale/runtime/optim/lamb_step.h"

namespace shale::optim {

// LAMB with bias corrections (arXiv:1904.00962, algorithm 2): AdamW's update with decay, u, of each
// parameter by itself scaled with its trust ratio |w| / |u|. As in the paper's program parameters
// that declare no decay, norms and biases, have a ratio of 1; they are those of AdamW then.
//
// Norms are of whole parameters, whose parts ranks add without an order (WholeNorms): steps have
// the same bits however parameters are sharded. Steps are collective where they are. Throws
// ConfigError as LambStep.
class Lamb : public ElementwiseOptimizer {
 public:
  Lamb(std::vector<OptimShard> shards, const LambOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  LambSpan span_of(size_t shard, const OptimRun& run) const;

  LambOptions options_;
  LambStep steps_;
  Tensor ratios_, rates_;  // of each parameter: LambStep::make_ratios(), make_rates()
};

}  // namespace shale::optim
