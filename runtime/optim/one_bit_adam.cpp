#include "shale/runtime/optim/one_bit_adam.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/optim.h"

namespace shale::optim {
namespace {

// Index of a state in states(). States are in the order in which they were added.
enum State : size_t { kM, kV, kWorkerError, kOwnerError };

std::shared_ptr<const ShardReplicas> replicas_over(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    if (shard.replicas == nullptr) {
      throw ConfigError(
          cat("1bit-adam: ", shard.name,
              " has no replica to exchange moments with, expected hybrid sharding over "
              "two or more replicas"));
    }
    if (&shard.master.context() == &shard.grad.context()) continue;
    throw ConfigError(cat("1bit-adam: the masters of ", shard.name,
                          " are on another device than its gradients; do not offload"));
  }
  return shards.empty() ? nullptr : shards.front().replicas;
}

}  // namespace

OneBitAdam::OneBitAdam(std::vector<OptimShard> shards, const OneBitAdamOptions& options)
    : ElementwiseOptimizer(std::move(shards), options.weight_decay),
      options_(options),
      replicas_(replicas_over(this->shards())) {
  if (options.freeze_step < 1) {
    throw ConfigError(
        cat("1bit-adam: freeze_step is ", options.freeze_step, ", expected 1 or more"));
  }
  add_states("m");
  add_states("v");
  add_error_states();
}

void OneBitAdam::add_error_states() {
  if (shards().empty()) return;
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

void OneBitAdam::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.beta1, done + 1);
  values.bias_correction2 = is_frozen() ? 1 : correction(options_.beta2, done + 1);
}

// Applies the bias correction to v, once, at the freeze. The frozen moments are those of the
// updates done so far, even if the first step after the freeze is skipped.
void OneBitAdam::correct_second_moments() {
  if (updates_done() == 0) {
    throw ConfigError(cat("1bit-adam: all ", options_.freeze_step,
                          " steps before the freeze were skipped; use a larger freeze_step"));
  }
  const float scale = 1 / correction(options_.beta2, updates_done());
  for (size_t i = 0; i < shards().size(); ++i) {
    const Tensor& v = state(i, kV);
    kernels::axpby(v.exec(), {.a = v, .y = v, .alpha = scale});
  }
}

void OneBitAdam::begin_step() {
  if (!is_frozen() || shards().empty()) return;
  if (prepared_step() == options_.freeze_step) correct_second_moments();
  average_moments();
}

void OneBitAdam::average_moments() {
  // Throws if shards were clipped separately, because kernels use one shard's values.
  hold_values();
  std::vector<OneBitVector> vectors;
  for (size_t i = 0; i < shards().size(); ++i) {
    // A replica's gradient is one term of a sum over the replicas. The mean of `size` times the
    // gradient is therefore the sum.
    vectors.push_back(
        {.value = state(i, kM),
         .grad = shards()[i].grad,
         .mask = state(i, kV),
         .owed = state(i, kWorkerError),
         .owner_owed = state(i, kOwnerError),
         .value_factor = options_.beta1,
         .grad_factor = (1.f - options_.beta1) * static_cast<float>(replicas_->size)});
  }
  replicas_->mean(exec(0), vectors);
}

void OneBitAdam::step_run(size_t index, const OptimRun& run, const View& compute) {
  const OptimShard& shard = shards()[index];
  const View m = part(state(index, kM), run);
  // After the freeze, decay rates of 1 leave the moments unchanged. The gradient is then not used,
  // but must be finite, so m is passed.
  kernels::adamw(exec(index), {.master = part(shard.master, run),
                               .grad = is_frozen() ? m : part(shard.grad, run),
                               .m = m,
                               .v = part(state(index, kV), run),
                               .param = compute,
                               .lr_factor = run.lr_factor,
                               .beta1 = is_frozen() ? 1 : options_.beta1,
                               .beta2 = is_frozen() ? 1 : options_.beta2,
                               .eps = options_.eps,
                               .weight_decay = run.weight_decay});
}

}  // namespace shale::optim
