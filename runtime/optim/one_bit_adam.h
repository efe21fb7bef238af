#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/replicas.h"

namespace shale::optim {

// Options of OneBitAdam, named as in the paper below.
struct OneBitAdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;  // as in AdamW
  int64_t freeze_step = 0;    // number of initial AdamW steps; at least 1
};

// 1-bit Adam with decoupled weight decay (arXiv:2102.02888, algorithm 1). Until step freeze_step it
// is AdamW, with bias corrections. Then v is frozen, with its bias correction applied, and
// gradients are no longer reduced over the replicas of hybrid sharding: each replica adds its own
// gradient to m, and m becomes the mean over replicas, exchanged with one bit per element
// (ShardReplicas). An element whose frozen v is exactly 0 (an unused row or padding) is only
// decayed.
//
// Additional states: worker_error, the compression error of this replica, and owner_error, the
// compression error of the means it owns (1 / replicas of the elements). In a checkpoint
// worker_error has one more dimension, over the replicas; another number of replicas uses the mean,
// so the error of the averaged update is unchanged.
//
// Throws ConfigError for shards without replicas, for gradients that are not in the memory of their
// masters, for freeze_step below 1, and if no step before the freeze changed anything.
class OneBitAdam : public ElementwiseOptimizer {
 public:
  OneBitAdam(std::vector<OptimShard> shards, const OneBitAdamOptions& options);

  bool needs_replica_sum() const override { return !is_frozen(); }
  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  // True if v is frozen in the prepared step.
  bool is_frozen() const { return prepared_step() >= options_.freeze_step; }
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void add_error_states();
  void correct_second_moments();
  // Replaces the moments of all shards by their means over the replicas. Collective.
  void average_moments();

  OneBitAdamOptions options_;
  std::shared_ptr<const ShardReplicas> replicas_;  // null: this rank has no shards
};

}  // namespace shale::optim
