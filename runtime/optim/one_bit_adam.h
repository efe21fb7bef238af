#pragma once

#include <vector>

#include "shale/runtime/optim/one_bit_optimizer.h"

namespace shale::optim {

// Names as in the paper below.
struct OneBitAdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;  // as AdamW's
  int64_t freeze_step = 0;    // steps of AdamW; at least 1
};

// 1-bit Adam with decoupled weight decay (arXiv:2102.02888, algorithm 1). Until step freeze_step it
// is AdamW, bias corrections included. Then v stays as it is, its correction put into it, and
// gradients are not added over the replicas of hybrid sharding any more: each adds its own to m,
// and what becomes m is the mean of theirs, which travels at one bit an element (ShardReplicas). An
// element whose v is exactly 0 then, of a row that no batch has used or of padding, is left alone
// but for its decay. Throws ConfigError as OneBitOptimizer.
class OneBitAdam : public OneBitOptimizer {
 public:
  OneBitAdam(std::vector<OptimShard> shards, const OneBitAdamOptions& options);

  bool needs_replica_sum() const override { return !is_frozen(); }
  void begin_step() override;

 private:
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void correct_second_moments();

  OneBitAdamOptions options_;
};

}  // namespace shale::optim
