#include "shale/runtime/optim/zero_one_adam.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/zero_one_adam.h"

namespace shale::optim {
namespace {

using kernels::ZeroOneStep;

// Of states(), as they are added.
enum State : size_t { kM, kV, kSum, kVWeight, kRates };

void copy(const Tensor& from, const Tensor& to) {
  if (from.numel() > 0) kernels::axpby(to.exec(), {.a = from, .y = to});
}

}  // namespace

bool updates_variance(int64_t step, int64_t doubling) {
  int64_t interval = 1;
  // A divisor, not a product, which would overflow.
  for (; step / interval >= doubling; interval *= 2) step -= doubling * interval;
  return step % interval == 0;
}

bool joins_replicas(int64_t local_step, int64_t doubling, int64_t most) {
  int64_t interval = 1;
  for (int64_t before = doubling; before <= local_step && interval < most; before += doubling) {
    interval = std::min(2 * interval, most);
  }
  const int64_t done = local_step % doubling + 1;
  return done % interval == 0 || done == doubling;
}

ZeroOneAdam::ZeroOneAdam(std::vector<OptimShard> shards, const ZeroOneAdamOptions& options)
    : OneBitOptimizer("01-adam", std::move(shards), options.weight_decay, options.freeze_step),
      options_(options) {
  for (const auto& [what, value] : {std::pair("variance_doubling", options.variance_doubling),
                                    std::pair("local_doubling", options.local_doubling),
                                    std::pair("local_most", options.local_most)}) {
    if (value < 1) throw ConfigError(cat("01-adam: ", what, " is ", value, ", want 1 or more"));
  }
  for (const auto& [name, replicas] :
       {std::pair("m", OverReplicas::kEach), std::pair("v", OverReplicas::kSame),
        std::pair("sum", OverReplicas::kEach)}) {
    for (size_t i = 0; i < this->shards().size(); ++i) {
      add_state({.name = name, .shard = i, .replicas = replicas}, this->shards()[i].grad.numel(),
                DType::kF32);
    }
  }
  add_states("v_weight", DType::kF32, kernels::kWeightBlock);
  add_states("rates", DType::kF32, kernels::kWeightBlock);
  add_error_states();
  for (const OptimShard& shard : this->shards()) {
    anchors_.push_back(empty(shard.grad.context(), shard.master.shape(), DType::kF32,
                             MemoryTag::kOptimizer, shard.name));
    kernels::fill(shard.grad.exec(), {.y = anchors_.back(), .value = 0});
  }
}

bool ZeroOneAdam::needs_replica_sum() const {
  return !is_frozen() && updates_variance(prepared_step(), options_.variance_doubling);
}

bool ZeroOneAdam::joins() const {
  return joins_replicas(prepared_step() - freeze_step(), options_.local_doubling,
                        options_.local_most);
}

// That of v is its weight, as it is not updated in all steps.
void ZeroOneAdam::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.beta1, done + 1);
  values.bias_correction2 = 1;
}

void ZeroOneAdam::begin_step() {
  if (shards().empty()) return;
  has_anchors_ = is_frozen();
  is_joined_ = !is_frozen() || joins();
  if (!is_frozen()) {
    if (!needs_replica_sum()) average(anchors_, kV, /*value_factor=*/0, /*grad_share=*/1);
    return;
  }
  if (is_first_frozen()) {
    check_frozen();
    forget_errors();
    for (size_t i = 0; i < shards().size(); ++i) copy(shards()[i].master, anchors_[i]);
  }
  if (!joins()) return;
  // All sums are complete before one collective has their means.
  for (size_t i = 0; i < shards().size(); ++i) {
    if (shards()[i].changing != nullptr) shards()[i].changing();
    for (const OptimRun& run : runs(i)) call(i, run, ZeroOneStep::kLocal, exec(i), {});
  }
  average_sums();
}

void ZeroOneAdam::average_sums() {
  average(states_of(kSum), kV, /*value_factor=*/1, /*grad_share=*/0);
}

void ZeroOneAdam::step_run(size_t index, const OptimRun& run, const View& compute) {
  const ZeroOneStep step = !is_frozen() ? ZeroOneStep::kShared
                           : joins()    ? ZeroOneStep::kJoin
                                        : ZeroOneStep::kLocal;
  call(index, run, step, exec(index), compute);
}

void ZeroOneAdam::call(size_t index, const OptimRun& run, ZeroOneStep step, const Exec& exec,
                       const View& compute) const {
  const OptimShard& shard = shards()[index];
  // What has one-bit gradients is clipped already.
  const bool of_mean = step == ZeroOneStep::kShared && !needs_replica_sum();
  kernels::zero_one_adam(exec,
                         {.step = step,
                          .master = part(shard.master, run),
                          .grad = part(of_mean ? anchors_[index] : shard.grad, run),
                          .m = part(state(index, kM), run),
                          .v = part(state(index, kV), run),
                          .v_weight = part(state(index, kVWeight), run, kernels::kWeightBlock),
                          .anchor = part(anchors_[index], run),
                          .sum = part(state(index, kSum), run),
                          .rates = part(state(index, kRates), run, kernels::kWeightBlock),
                          .param = compute,
                          .updates_v = step == ZeroOneStep::kShared && !of_mean,
                          .clips = !of_mean,
                          .grad_factor = step == ZeroOneStep::kLocal ? replicas() : 1,
                          .lr_factor = run.lr_factor,
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .weight_decay = run.weight_decay});
}

// ---- Between steps ----

Tensor ZeroOneAdam::anchor(size_t shard) const {
  return has_anchors_ ? anchors_[shard] : Tensor();
}

void ZeroOneAdam::use_anchors(bool use) {
  if (!has_anchors_) return;
  for (size_t i = 0; i < shards().size(); ++i) {
    if (shards()[i].changing != nullptr) shards()[i].changing();
    if (use) {
      copy(anchors_[i], shards()[i].master);
    } else {
      place(i);
    }
  }
}

void ZeroOneAdam::place(size_t index) const {
  for (const OptimRun& run : runs(index)) {
    call(index, run, ZeroOneStep::kPlace, shards()[index].grad.exec(), {});
  }
}

void ZeroOneAdam::join_replicas() {
  if (is_joined_ || shards().empty()) return;
  is_joined_ = true;
  average_sums();
  for (size_t i = 0; i < shards().size(); ++i) {
    const OptimShard& shard = shards()[i];
    if (shard.changing != nullptr) shard.changing();
    for (const OptimRun& run : runs(i)) {
      call(i, run, ZeroOneStep::kJoin, exec(i), part(shard.compute, run));
    }
    for (const OptimSpan& span : shard.spans) span.parameter->value.bump_version();
    if (shard.changed != nullptr) shard.changed();
  }
}

void ZeroOneAdam::loaded() const {
  const bool are_loaded = std::exchange(has_anchors_, true);  // in place of masters
  for (size_t i = 0; i < shards().size(); ++i) {
    if (!are_loaded) copy(shards()[i].master, anchors_[i]);
    place(i);
  }
}

}  // namespace shale::optim
