#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/replicas.h"

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
// but for its decay.
//
// States besides m and v: worker_error, what this replica has not said so far, and owner_error,
// what its own share of the means left out, 1 / replicas of it. On a checkpoint the first has a
// dimension more, over the replicas; another number of them takes the mean, which is what they owe
// together.
//
// Throws ConfigError for shards without replicas, for gradients that are not where their masters
// are, for a freeze_step below 1, and for a freeze before which no step has changed anything.
class OneBitAdam : public ElementwiseOptimizer {
 public:
  OneBitAdam(std::vector<OptimShard> shards, const OneBitAdamOptions& options);

  bool needs_replica_sum() const override { return !is_frozen(); }
  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  // Whether the step that is prepared is one of those in which v stays.
  bool is_frozen() const { return prepared_step() >= options_.freeze_step; }
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void add_error_states();
  void correct_second_moments();
  // The moments of all shards become their means over the replicas. Collective.
  void average_moments();

  OneBitAdamOptions options_;
  std::shared_ptr<const ShardReplicas> replicas_;  // null: this rank has no shards
};

}  // namespace shale::optim
