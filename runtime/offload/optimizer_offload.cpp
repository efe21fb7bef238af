#include "shale/runtime/offload/optimizer_offload.h"

#include <algorithm>
#include <cstring>

#include "shale/base/error.h"
#include "shale/base/log.h"

namespace shale::offload {

OptimizerOffload::OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, bool background)
    : tier_(tier), shards_(std::move(shards)), stepped_(shards_) {
  state_ = tier.allocate(sizeof(StepState), DType::kU8, MemoryTag::kData, "step state");
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!is_here(shards_[i].master)) continue;
    OptimShard& host = stepped_[i];
    if (host.fence == nullptr) {
      throw InternalError(cat("offload: ", host.name,
                              " has no fence at which readers wait for the host's optimizer step"));
    }
    if (host.fence->has_stepper() || !host.is_whole()) {
      throw ConfigError(cat("offload: ", host.name,
                            " is updated by several optimizers; use one optimizer with parameter "
                            "options (set_parameter_options)"));
    }
    if (!is_here(host.grad)) {
      host.grad =
          tier.allocate(host.grad.numel(), host.grad.dtype(), MemoryTag::kGradient, host.name);
    }
    const size_t place = places_.size();
    places_.push_back({.shard = i});
    order_.push_back(place);
    shards_[i].fence->set(
        {.wait = [this, place](void* stream) { wait_for(place, stream); },
         .gradient_complete = [this, place](const Event& e) { gradient_complete(place, e); }});
  }
  if (background) thread_ = std::thread([this] { work(); });
}

OptimizerOffload::~OptimizerOffload() {
  try {
    finish();
  } catch (const std::exception& error) {  // an error of a step that nobody waited for
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

// ---- Device side ----

void OptimizerOffload::step_during_backward(optim::Optimizer& optimizer) {
  if (optimizer.needs_all_gradients()) {
    throw ConfigError(
        "offload: this optimizer needs all gradients first, so it cannot update shards during "
        "backward; call only step()");
  }
  finish();
  during_backward_ = true;
  send_state(optimizer);
}

void OptimizerOffload::step(optim::Optimizer& optimizer) {
  if (!during_backward_) finish();
  complete_gradients(shards_);
  if (!during_backward_) send_state(optimizer);
  for (const size_t index : order_) {
    if (!places_[index].sent) gradient_complete(index, {});
  }
  if (optimizer.needs_all_gradients()) {
    load_state();
    for (const Place& place : places_) place.downloaded.synchronize();
    optimizer.begin_step();
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!is_here(shards_[i].master)) {
      if (shards_[i].changing != nullptr) shards_[i].changing();
      optimizer.step_shard(i, shards_[i].compute);
    }
    for (const OptimSpan& span : shards_[i].spans) span.parameter->value.bump_version();
    if (shards_[i].changed != nullptr) shards_[i].changed();
  }
  for (const size_t index : order_) {
    if (!places_[index].begun) begin(index);
  }
  for (Place& place : places_) place.sent = place.begun = false;
  during_backward_ = false;
}

// Starts to download the optimizer's values for this step, such as the learning rate.
void OptimizerOffload::send_state(optim::Optimizer& optimizer) {
  optimizer_ = &optimizer;
  // While the copy is pending, this reference keeps the values alive, so the next step's values get
  // new memory.
  state_held_ = optimizer.hold_values();
  state_downloaded_ = tier_.download(*state_held_, state_, {tier_.computed()});
  state_loaded_ = false;
}

void OptimizerOffload::gradient_complete(size_t index, const Event& arrived) {
  Place& place = places_[index];
  const Tensor& grad = shards_[place.shard].grad;
  if (place.begun) {
    throw InternalError(cat("offload: ", shards_[place.shard].name,
                            ": a gradient arrived after the shard's update had begun; call "
                            "step_during_backward() before the last backward of a step"));
  }
  place.downloaded = is_here(grad)
                         ? arrived
                         : tier_.download(grad, stepped_[place.shard].grad, {tier_.computed()});
  place.sent = true;
  if (during_backward_) begin(index);
}

void OptimizerOffload::begin(size_t index) {
  Place& place = places_[index];
  place.computed = tier_.computed();
  place.begun = true;
  place.stepped = place.reached = place.in_place = false;
  if (!thread_.joinable()) {
    if (stepper_ != nullptr) {
      stepper_->step(index, [this, index] { run(index); });
    } else {
      run(index);
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(index);
  }
  changed_.notify_all();
}

void OptimizerOffload::wait_for(size_t index, void* stream) {
  Place& place = places_[index];
  if (place.in_place) return;
  if (stepper_ != nullptr && !place.reached) stepper_->await(index);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return place.stepped || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
  }
  place.uploaded.hold_back(stream);
  if (!place.reached) next_order_.push_back(index);
  place.reached = true;
  place.in_place = stream == tier_.device().exec().stream;
}

void OptimizerOffload::finish() {
  void* const stream = tier_.device().exec().stream;
  for (size_t i = 0; i < places_.size(); ++i) wait_for(i, stream);
  if (next_order_.size() == places_.size()) order_ = std::move(next_order_);
  next_order_.clear();
  state_held_.reset();
  tier_.settle();
}

// ---- CPU side ----

void OptimizerOffload::run(size_t index) {
  Place& place = places_[index];
  std::exception_ptr error;
  Event uploaded;
  try {
    load_state();
    place.downloaded.synchronize();
    // In a skipped step the parameters do not change, so nothing has to be computed or uploaded.
    const bool skipped = optimizer_->values_in(tier_.context()).non_finite != 0;
    if (!skipped && !tier_.on_disk()) uploaded = step_shard(place);
    if (!skipped && tier_.on_disk()) {
      for (const Tensor& x : memory_of(place)) tier_.prefetch(x);
      for (const Tensor& x : memory_of(place)) tier_.acquire(x);
      prefetch_next(index);  // the next shard's read overlaps with this step
      uploaded = step_shard(place);
      uploaded.synchronize();
      const Tensor& grad = stepped_[place.shard].grad;
      for (const Tensor& x : memory_of(place)) tier_.release(x, x.data() != grad.data());
    }
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    if (error != nullptr) {
      error_ = error;
      queue_.clear();
    } else {
      place.uploaded = uploaded;
      place.stepped = true;
    }
  }
  changed_.notify_all();
}

std::vector<Tensor> OptimizerOffload::memory_of(const Place& place) const {
  std::vector<Tensor> memory = optimizer_->memory_of(place.shard);
  memory.push_back(stepped_[place.shard].grad);
  std::erase_if(memory, [this](const Tensor& x) { return !x.defined() || !is_here(x); });
  return memory;
}

// Prefetches the next shard from disk. In backward this is the previous shard of the forward order.
// A gradient whose download is still in progress is not prefetched.
void OptimizerOffload::prefetch_next(size_t index) {
  const auto at = std::find(order_.begin(), order_.end(), index);
  const bool is_last = during_backward_ ? at == order_.begin() : at + 1 == order_.end();
  if (at == order_.end() || is_last) return;
  const Place& next = places_[during_backward_ ? *(at - 1) : *(at + 1)];
  for (const Tensor& x : memory_of(next)) {
    const bool is_grad = x.data() == stepped_[next.shard].grad.data();
    if (!is_grad || (next.sent && next.downloaded.done())) tier_.prefetch(x);
  }
}

void OptimizerOffload::load_state() {
  if (state_loaded_) return;
  state_downloaded_.synchronize();
  std::memcpy(&optimizer_->values_in(tier_.context()), state_.data(), sizeof(StepState));
  state_loaded_ = true;
}

Event OptimizerOffload::step_shard(const Place& place) {
  const OptimShard& shard = shards_[place.shard];
  if (!shard.compute.defined() || shard.compute.dtype() == DType::kF32) {
    optimizer_->step_shard(place.shard, {});
    // A shard without `compute` needs no upload, because readers copy its master.
    return shard.compute.defined() ? tier_.upload(shard.master, shard.compute, {place.computed})
                                   : Event();
  }
  Tensor rounded = tier_.allocate(shard.compute.numel(), shard.compute.dtype(),
                                  MemoryTag::kWorkspace, shard.name);
  optimizer_->step_shard(place.shard, rounded);
  const Event uploaded = tier_.upload(rounded, shard.compute, {place.computed});
  tier_.release_after(std::move(rounded), uploaded);
  return uploaded;
}

void OptimizerOffload::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const size_t index = queue_.front();
    queue_.pop_front();
    lock.unlock();
    run(index);
    lock.lock();
  }
}

}  // namespace shale::offload
