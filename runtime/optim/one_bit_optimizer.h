#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/replicas.h"

namespace shale::optim {

// What optimizers have in common whose replicas, those of hybrid sharding, exchange vectors at one
// bit an element from some step on (ShardReplicas).
//
// States besides the class's own: worker_error, what this replica has not said so far, and
// owner_error, what its own share of the means left out, 1 / replicas of it. On a checkpoint the
// first has a dimension more, over the replicas; another number of them takes the mean, which is
// what they owe together.
class OneBitOptimizer : public ElementwiseOptimizer {
 public:
  bool needs_all_gradients() const override { return true; }

 protected:
  // Throws ConfigError, naming the optimizer, for shards without replicas, for gradients that are
  // not where their masters are, and for a freeze_step below 1.
  OneBitOptimizer(const char* name, std::vector<OptimShard> shards, float weight_decay,
                  int64_t freeze_step, Runs runs = Runs::kJoined);

  const char* name() const { return name_; }
  int64_t freeze_step() const { return freeze_step_; }
  // Whether the step that is prepared is one of those in which v stays.
  bool is_frozen() const { return prepared_step() >= freeze_step_; }
  bool is_first_frozen() const { return prepared_step() == freeze_step_; }
  // Throws ConfigError for a freeze before which no step has changed anything.
  void check_frozen() const;

  void add_error_states();
  void forget_errors();
  // Of each shard a vector that becomes the mean over the replicas of
  //   value_factor * value + grad_share * (clip factor of the step * the gradient of all samples)
  // where `mask`, one of states(), is not 0, and 0 where it is. grad_share 0: no gradient.
  // Collective.
  void average(std::span<const Tensor> values, size_t mask, float value_factor, float grad_share);
  // All shards' states()[index].
  std::vector<Tensor> states_of(size_t index) const;
  // A replica has its share of the sum of gradients, whose mean is of so many times that.
  float replicas() const {
    return replicas_ == nullptr ? 1.f : static_cast<float>(replicas_->size);
  }

 private:
  const char* name_;
  int64_t freeze_step_;
  std::shared_ptr<const ShardReplicas> replicas_;  // null: this rank has no shards
  size_t worker_error_ = 0;                        // its index among the states of a shard
};

}  // namespace shale::optim
