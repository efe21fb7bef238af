#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/replicas.h"

namespace shale::optim {

// Options of OneBitAdam, with the names in arXiv:2102.02888.
struct OneBitAdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;  // see AdamWOptions::weight_decay
  int64_t freeze_step = 0;    // number of steps of AdamW at the beginning; at least 1
};

// 1-bit Adam with decoupled weight decay (arXiv:2102.02888, algorithm 1). Until step freeze_step it
// is AdamW with bias corrections. From then on v is frozen, with its bias correction applied, and
// gradients are no longer reduced over the replicas of hybrid sharding. Instead each replica adds
// its own gradient to m. Then m becomes the mean over the replicas, which exchange it with one bit
// per element (ShardReplicas). An element whose frozen v is exactly 0 (an unused row or padding) is
// only decayed.
//
// There are two more states. worker_error is the compression error of this replica. owner_error is
// the compression error of the means that this replica computes, 1 / replicas of the elements. In a
// checkpoint worker_error has an additional dimension, the replicas. If their number changes, their
// mean is used, so that the error of the averaged update is unchanged.
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
  // True if v is frozen in the step of the last prepare().
  bool is_frozen() const { return prepared_step() >= options_.freeze_step; }
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void add_error_states();
  void correct_second_moments();
  // Replaces the moments of all shards by their means over the replicas. Collective.
  void average_moments();

  OneBitAdamOptions options_;
  // replicas of the shards; null: this rank has no shards
  std::shared_ptr<const ShardReplicas> replicas_;
};

}  // namespace shale::optim
