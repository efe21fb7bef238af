#include "runtime/offload/optimizer_offload.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace shale::offload {

OptimizerOffload::OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, bool background)
    : tier_(tier), shards_(std::move(shards)), stepped_(shards_) {
  state_ = tier.allocate(sizeof(StepState), DType::kU8, MemoryTag::kData, "step state");
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!is_here(shards_[i].master)) continue;
    OptimShard& host = stepped_[i];
    if (host.fence == nullptr) {
      throw InternalError(cat("offload: ", host.name, " has no fence for its readers to wait at"));
    }
    if (!is_here(host.grad)) {
      host.grad =
          tier.allocate(host.grad.numel(), host.grad.dtype(), MemoryTag::kGradient, host.name);
    }
    const size_t place = places_.size();
    places_.push_back({.shard = i});
    order_.push_back(place);
    shards_[i].fence->set([this, place] { wait_for(place); });
  }
  if (background) thread_ = std::thread([this] { work(); });
}

OptimizerOffload::~OptimizerOffload() {
  try {
    finish();
  } catch (
      const std::exception& error) {  // reported by whoever waited for the step, or lost with it
    log_warning("offload: ", error.what());
  }
  for (const Place& place : places_) shards_[place.shard].fence->set({});
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OptimizerOffload::step(optim::Optimizer& optimizer) {
  finish();
  complete_gradients(shards_);
  optimizer.begin_step();
  computed_ = tier_.computed();
  // Held until it is queued: the next step's values then go to a new place.
  state_held_ = tier_.device().hold_step();
  state_downloaded_ = tier_.download(*state_held_, state_, {computed_});
  for (const size_t index : order_) {
    Place& place = places_[index];
    const Tensor& grad = shards_[place.shard].grad;
    place.downloaded =
        is_here(grad) ? Event() : tier_.download(grad, stepped_[place.shard].grad, {computed_});
    place.stepped = place.awaited = false;
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!is_here(shards_[i].master)) optimizer.update(i, shards_[i].compute);
    for (const OptimSpan& span : shards_[i].spans) span.parameter->value.bump_version();
    if (shards_[i].changed != nullptr) shards_[i].changed();
  }
  if (!thread_.joinable()) return run_step(optimizer);
  {
    const std::lock_guard lock(mutex_);
    optimizer_ = &optimizer;
  }
  changed_.notify_all();
}

void OptimizerOffload::finish() {
  for (size_t i = 0; i < places_.size(); ++i) wait_for(i);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return optimizer_ == nullptr; });
  }
  if (next_order_.size() == places_.size()) order_ = std::move(next_order_);
  next_order_.clear();
  state_held_.reset();
}

void OptimizerOffload::wait_for(size_t index) {
  Place& place = places_[index];
  if (place.awaited) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return place.stepped || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
  }
  place.uploaded.hold_back(tier_.device().exec().stream);
  place.awaited = true;
  next_order_.push_back(index);
}

void OptimizerOffload::run_step(optim::Optimizer& optimizer) {
  state_downloaded_.synchronize();
  StepState& state = *tier_.context().exec().step;
  std::memcpy(&state, state_.data(), sizeof(StepState));
  for (const size_t index : order_) {
    Place& place = places_[index];
    place.downloaded.synchronize();
    // Kernels would do nothing, and leave nothing to send.
    const Event uploaded = state.non_finite != 0 ? Event() : step_shard(optimizer, place);
    {
      const std::lock_guard lock(mutex_);
      place.uploaded = uploaded;
      place.stepped = true;
    }
    changed_.notify_all();
  }
}

Event OptimizerOffload::step_shard(optim::Optimizer& optimizer, const Place& place) {
  const OptimShard& shard = shards_[place.shard];
  if (!shard.compute.defined() || shard.compute.dtype() == DType::kF32) {
    optimizer.update(place.shard, {});
    // Without: readers fetch the masters.
    return shard.compute.defined() ? tier_.upload(shard.master, shard.compute, {computed_})
                                   : Event();
  }
  Tensor rounded = tier_.allocate(shard.compute.numel(), shard.compute.dtype(),
                                  MemoryTag::kWorkspace, shard.name);
  optimizer.update(place.shard, rounded);
  const Event uploaded = tier_.upload(rounded, shard.compute, {computed_});
  tier_.release_after(std::move(rounded), uploaded);
  return uploaded;
}

void OptimizerOffload::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || optimizer_ != nullptr; });
    if (optimizer_ == nullptr) return;
    lock.unlock();
    std::exception_ptr error;
    try {
      run_step(*optimizer_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    optimizer_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace shale::offload
