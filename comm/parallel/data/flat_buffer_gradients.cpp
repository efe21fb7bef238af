// The gradients of a FlatBuffer: where backward writes them, how they are added, where they stay.
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/flat_buffer.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {

void FlatBuffer::make_gradients() {
  if (!shards_gradients()) {
    whole_grad_ = zeroed(shared_.context, layout_.numel, traits_.reduce, MemoryTag::kGradient);
    shard_.grad = is_sharded() ? own_part(whole_grad_) : whole_grad_;
  } else {
    Context& memory = traits_.offload.gradients ? traits_.offload.tier->context() : shared_.context;
    const int64_t count = layout_.count_of(shared_.groups.shard->rank());
    shard_.grad = zeroed(memory, count, traits_.reduce, MemoryTag::kGradient);
    if (traits_.offload.gradients) {
      host_gradient_ = std::make_unique<HostGradient>(*traits_.offload.tier, shard_.grad, name_);
    }
  }
  if (is_sharded()) shard_.has_grad = std::make_shared<bool>(false);
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& leaf = leaf_state(entry.parameter->value);
    leaf.has_value = false;
    if (shards_gradients()) {
      leaf.allocate_grad = [this, &entry] {
        make_whole_gradient();
        return leaf_state(entry.parameter->value).grad;
      };
    }
  }
  if (whole_grad_.defined()) {
    for (const FlatEntry& entry : layout_.entries) {
      leaf_state(entry.parameter->value).grad = entry.part_of(whole_grad_);
    }
  }
}

void FlatBuffer::add_ready_hook(const std::function<void(const Parameter&)>& ready) {
  for (const FlatEntry& entry : layout_.entries) {
    leaf_state(entry.parameter->value).ready_hooks.push_back([ready, parameter = entry.parameter] {
      ready(*parameter);
    });
  }
}

void FlatBuffer::make_whole_gradient() {
  shared_.before_gradient();
  whole_grad_ =
      empty(shared_.context, {layout_.numel}, traits_.reduce, MemoryTag::kGradient, name_);
  int64_t end = 0;
  const auto clear_padding = [&](int64_t next) {
    if (next == end) return;
    kernels::fill(whole_grad_.exec(),
                  {.y = vector_slice(whole_grad_, end, next - end), .value = 0});
  };
  for (const FlatEntry& entry : layout_.entries) {
    clear_padding(entry.offset);
    end = entry.end();
    LeafState& leaf = leaf_state(entry.parameter->value);
    leaf.grad = entry.part_of(whole_grad_);
    leaf.has_value = false;
  }
  clear_padding(layout_.numel);
}

void FlatBuffer::free_whole_gradient() {
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& leaf = leaf_state(entry.parameter->value);
    leaf.has_value = false;
    if (shards_gradients()) leaf.grad = Tensor();
  }
  if (shards_gradients()) whole_grad_ = Tensor();
}

void FlatBuffer::complete() {
  if (!whole_grad_.defined()) make_whole_gradient();
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& leaf = leaf_state(entry.parameter->value);
    if (!leaf.has_value) kernels::fill(leaf.grad.exec(), {.y = leaf.grad, .value = 0});
    leaf.has_value = true;
  }
}

void FlatBuffer::begin_backward() {
  wait_for_step();  // its gradients may be on their way still
  told_complete_ = false;
}

// Whether the sum over ranks goes straight to where it stays.
bool FlatBuffer::reduces_in_place() const {
  if (shared_.options.reproducible || traits_.offload.gradients) return false;
  return !shards_gradients() || (!*shard_.has_grad && !layout_.owner);
}

void FlatBuffer::start_reduce() {
  if (shared_.options.stage == 1 && !shared_.options.reproducible && *shard_.has_grad) {
    throw InternalError(cat(name_,
                            ": a second backward reduces gradients before zero_grad(), which stage "
                            "1 cannot add to the first; want all but the last without reduction"));
  }
  complete();
  CollectiveOptions options = shared_.collective(name_, Traffic::kGradients);
  if (!is_sharded() && !shared_.options.reproducible) {
    sum_ = whole_grad_;
    reduction_ = shared_.groups.shard->all_reduce_sum(whole_grad_, options);
  } else {
    sum_ = shards_gradients() && reduces_in_place() ? shard_.grad : own_part(whole_grad_);
    reduction_ = start_sum(options);
  }
  if (shared_.groups.replicate != nullptr && sum_.numel() > 0) {
    options.after = &reduction_;
    replicas_ = shared_.groups.replicate->all_reduce_sum(sum_, options);
  }
  reducing_ = true;
}

// Starts the sum of all ranks' gradients, to sum_.
Work FlatBuffer::start_sum(const CollectiveOptions& options) {
  ProcessGroup& group = *shared_.groups.shard;
  return layout_.owner ? group.all_reduce_sum(whole_grad_, options)
                       : group.reduce_scatter_sum(whole_grad_, sum_, options);
}

bool FlatBuffer::reduction_done() const {
  return reduction_.done() && replicas_.done();
}

void FlatBuffer::finish_reduce(bool last) {
  if (!reducing_) return;
  reducing_ = false;
  shared_.wait(std::exchange(reduction_, Work()));
  shared_.wait(std::exchange(replicas_, Work()));
  const Tensor sum = std::exchange(sum_, Tensor());
  if (is_sharded() || shared_.options.reproducible) {
    if (shared_.options.reproducible) {
      counter_.add(sum);
    } else if (host_gradient_ != nullptr) {
      host_gradient_->add(sum, /*first=*/!*shard_.has_grad);
    } else if (!reduces_in_place() && *shard_.has_grad) {
      kernels::axpby(sum.exec(), {.a = shard_.grad, .b = sum, .y = shard_.grad});
    } else if (!reduces_in_place()) {
      kernels::axpby(sum.exec(), {.a = sum, .y = shard_.grad});
    }
    if (is_sharded()) *shard_.has_grad = true;
    free_whole_gradient();
  }
  if (!last || shared_.options.reproducible) return;
  if (host_gradient_ == nullptr) {
    tell_complete({});
  } else if (host_gradient_->settles_itself()) {
    tell_complete(host_gradient_->arrived());
  }
}

void FlatBuffer::finish_step() {
  finish_reduce(/*last=*/true);
  if (shared_.options.reproducible) {
    const Tensor sum = counter_.take(name_);
    if (host_gradient_ != nullptr) {
      host_gradient_->add(sum, /*first=*/true);
    } else {
      take_reproducible_sum(sum);
    }
  }
  if (host_gradient_ != nullptr) host_gradient_->settle();
  tell_complete({});
}

void FlatBuffer::take_reproducible_sum(const Tensor& sum) {
  const Tensor part = is_sharded() ? shard_.grad : own_part(whole_grad_);
  kernels::axpby(part.exec(), {.a = sum, .y = part});
  if (is_sharded()) return;
  const CollectiveOptions options = shared_.collective(name_, Traffic::kGradients);
  ProcessGroup& group = *shared_.groups.shard;
  shared_.wait(layout_.owner ? group.broadcast(whole_grad_, *layout_.owner, options)
                             : group.all_gather(part, whole_grad_, options));
  for (const FlatEntry& entry : layout_.entries) {
    leaf_state(entry.parameter->value).has_value = true;
  }
}

void FlatBuffer::for_each_gradient_flag(const std::function<void(bool&)>& visit) {
  if (!traits_.trainable) return;
  if (shard_.has_grad != nullptr) visit(*shard_.has_grad);
  for (const FlatEntry& entry : layout_.entries)
    visit(leaf_state(entry.parameter->value).has_value);
}

void FlatBuffer::finish_alone() {
  complete();
  tell_complete({});
}

// Whoever steps the shard elsewhere may fetch the gradient now. `arrived`: it is in host memory
// when that has come to pass.
void FlatBuffer::tell_complete(const Event& arrived) {
  if (!told_complete_ && shard_.fence != nullptr) shard_.fence->gradient_complete(arrived);
  told_complete_ = true;
}

}  // namespace shale::comm
