#include "shale/runtime/optim/one_bit_optimizer.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::optim {
namespace {

std::shared_ptr<const ShardReplicas> replicas_over(const char* name,
                                                   const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    if (shard.replicas == nullptr) {
      throw ConfigError(cat(name, ": ", shard.name,
                            " has no replica to exchange moments with, want hybrid sharding over "
                            "two or more"));
    }
    if (&shard.master.context() == &shard.grad.context()) continue;
    throw ConfigError(cat(name, ": the masters of ", shard.name,
                          " are not where its gradients are, want nothing offloaded"));
  }
  return shards.empty() ? nullptr : shards.front().replicas;
}

}  // namespace

OneBitOptimizer::OneBitOptimizer(const char* name, std::vector<OptimShard> shards,
                                 float weight_decay, int64_t freeze_step, Runs runs)
    : ElementwiseOptimizer(std::move(shards), weight_decay, runs),
      name_(name),
      freeze_step_(freeze_step),
      replicas_(replicas_over(name, this->shards())) {
  if (freeze_step >= 1) return;
  throw ConfigError(cat(name, ": freeze_step is ", freeze_step, ", want 1 or more"));
}

void OneBitOptimizer::check_frozen() const {
  if (updates_done() > 0) return;
  throw ConfigError(cat(name_, ": of the ", freeze_step_,
                        " steps before the freeze none has changed anything, want more of them"));
}

void OneBitOptimizer::add_error_states() {
  if (shards().empty()) return;
  worker_error_ = states().size() / shards().size();
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < shards().size(); ++i) {
    lengths.push_back(shards()[i].grad.numel());
    add_state({.name = "worker_error", .shard = i, .replicas = OverReplicas::kEach}, lengths.back(),
              DType::kF32);
  }
  const std::vector<ElementRange> owned = replicas_->owned(lengths);
  for (size_t i = 0; i < owned.size(); ++i) {
    add_state({.name = "owner_error",
               .shard = i,
               .first = owned[i].first,
               .replicas = OverReplicas::kCut},
              owned[i].count, DType::kF32);
  }
}

void OneBitOptimizer::forget_errors() {
  for (const size_t index : {worker_error_, worker_error_ + 1}) {
    for (const Tensor& error : states_of(index)) {
      if (error.numel() > 0) kernels::fill(error.exec(), {.y = error, .value = 0});
    }
  }
}

std::vector<Tensor> OneBitOptimizer::states_of(size_t index) const {
  std::vector<Tensor> states;
  for (size_t i = 0; i < shards().size(); ++i) states.push_back(state(i, index));
  return states;
}

void OneBitOptimizer::average(std::span<const Tensor> values, size_t mask, float value_factor,
                              float grad_share) {
  hold_values();  // throws for shards that were clipped apart: kernels are called with one's values
  std::vector<OneBitVector> vectors;
  for (size_t i = 0; i < shards().size(); ++i) {
    vectors.push_back({.value = values[i],
                       .grad = grad_share != 0 ? shards()[i].grad : Tensor(),
                       .mask = state(i, mask),
                       .owed = state(i, worker_error_),
                       .owner_owed = state(i, worker_error_ + 1),
                       .value_factor = value_factor,
                       .grad_factor = grad_share * replicas()});
  }
  replicas_->mean(exec(0), vectors);
}

}  // namespace shale::optim
