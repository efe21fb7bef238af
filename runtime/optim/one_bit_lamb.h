#pragma once

#include <vector>

#include "shale/runtime/optim/lamb_step.h"
#include "shale/runtime/optim/one_bit_optimizer.h"

namespace shale::optim {

// Names as in the papers below; in brackets those of DeepSpeed.
struct OneBitLambOptions {
  LambOptions lamb = {};
  int64_t freeze_step = 0;     // steps of LAMB; at least 1
  float ratio_beta = 0.9f;     // of the mean of trust ratios until the freeze (coeff_beta)
  float factor_min = 0.5f;     // limits of what that mean is multiplied with then
  float factor_max = 4;        //
  float factor_change = 0.1f;  // share by which this changes in a step, at most (factor_threshold)
};

// 1-bit LAMB with decoupled weight decay (arXiv:2104.06069, algorithm 1). Until step freeze_step it
// is LAMB (Lamb), bias corrections included. Then v stays as it is, its correction put into it,
// and m is exchanged as 1-bit Adam does (OneBitAdam). In place of a trust ratio each parameter has
// the mean of those before, times a factor: the largest sqrt(v) / sqrt(fresh) among its elements,
// where `fresh` goes on from v by the gradients that the exchanged moments tell of,
// (m - beta1 * m before) / (1 - beta1); weighed with the share of the update that is no decay, and
// held inside its limits. As every 1024 elements have a scale of their own here, momenta are not
// scaled to one magnitude before they are packed.
//
// States besides the class's m, v and errors: fresh; and of each parameter the mean of its ratios
// and its last factor. Throws ConfigError as OneBitOptimizer and LambStep.
class OneBitLamb : public OneBitOptimizer {
 public:
  OneBitLamb(std::vector<OptimShard> shards, const OneBitLambOptions& options);

  bool needs_replica_sum() const override { return !is_frozen(); }
  void begin_step() override;

 private:
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  LambSpan span_of(size_t shard, const OptimRun& run) const;
  void add_gradients(const Exec& exec);
  void freeze();
  void step_frozen(const Exec& exec);
  // `fresh` by what m was before; `largest` of each parameter on all ranks.
  void refresh(const Exec& exec, const std::vector<Tensor>& before, const Tensor& largest);
  void refresh_run(const Exec& exec, size_t shard, const OptimRun& run, const View& before,
                   const Tensor& largest);

  OneBitLambOptions options_;
  LambStep steps_;
  Tensor means_, factors_;  // of each parameter; saved
  Tensor rates_;            // of the step
};

}  // namespace shale::optim
