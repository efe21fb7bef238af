// The gradients of a FlatBuffer: where backward writes them, how they are added, where they stay.
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "shale/comm/parallel/data/flat_buffer.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {

void FlatBuffer::make_gradients() {
  if (!shards_gradients()) {
    whole_grad_ = zeroed(shared_.context, layout_.numel, traits_.reduce, MemoryTag::kGradient);
    shard_.grad = is_sharded() ? own_part(whole_grad_) : whole_grad_;
  } else {
    Context& memory = traits_.offload.gradients ? traits_.offload.tier->context() : shared_.context;
    const int64_t count = layout_.count_of(ranks().rank());
    shard_.grad = zeroed(memory, count, traits_.reduce, MemoryTag::kGradient);
    if (traits_.offload.gradients) {
      host_gradient_ = std::make_unique<HostGradient>(*traits_.offload.tier, shard_.grad, name_);
      shard_.gradient->in_memory = [this](const std::function<void()>& use) {
        host_gradient_->with_sum(use);
      };
    }
  }
  shard_.gradient->parameters = layout_.entries.size();
  if (is_sharded()) shard_.gradient->has_value = false;
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& state = leaf(entry);
    state.has_value = false;
    state.allocate_grad = [this, &entry] {
      shards_gradients() ? make_whole_gradient() : keep_sum();
      return leaf(entry).grad;
    };
  }
  if (whole_grad_.defined()) {
    for (const FlatEntry& entry : layout_.entries) {
      leaf(entry).grad = entry.part_of(whole_grad_);
    }
  }
  row_grads_.resize(row_parts() - 1);
  parts_ready_.assign(layout_.entries.size(), 0);
  for (size_t part = 1; part < row_parts(); ++part) {
    for (const FlatEntry& entry : layout_.entries) {
      leaf(entry, part).allocate_grad = [this, &entry, part] {
        make_row_gradient(part);
        return leaf(entry, part).grad;
      };
    }
  }
}

void FlatBuffer::add_ready_hook(const std::function<void(const FlatEntry&)>& ready) {
  for (const FlatEntry& entry : layout_.entries) {
    for (size_t part = 0; part < row_parts(); ++part) {
      leaf(entry, part).ready_hooks.push_back([this, ready, &entry] {
        if (is_last_part(entry)) ready(entry);
      });
    }
  }
}

// ---- Gradients of parts of the rows ----

bool FlatBuffer::is_last_part(const FlatEntry& entry) {
  const auto index = static_cast<size_t>(&entry - layout_.entries.data());
  return row_parts() == 1 || ++parts_ready_[index] == row_parts();
}

// Padding is zero here too.
void FlatBuffer::make_row_gradient(size_t part) {
  Tensor& grad = row_grads_[part - 1];
  grad = zeroed(shared_.context, layout_.numel, traits_.reduce, MemoryTag::kGradient);
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& state = leaf(entry, part);
    state.grad = entry.part_of(grad);
    state.has_value = false;
  }
}

// None, where whole_grad_ has what all parts have made.
void FlatBuffer::make_missing_row_gradients() {
  const auto defined = [](const Tensor& grad) { return grad.defined(); };
  if (std::none_of(row_grads_.begin(), row_grads_.end(), defined)) return;
  for (size_t part = 1; part < row_parts(); ++part) {
    if (!row_grads_[part - 1].defined()) make_row_gradient(part);
  }
}

// By a binary tree over the parts, to whole_grad_.
void FlatBuffer::add_row_gradients() {
  if (row_grads_.empty() || !row_grads_.front().defined()) return;
  std::vector<const void*> inputs = {whole_grad_.data()};
  for (const Tensor& grad : row_grads_) inputs.push_back(grad.data());
  void* const output = whole_grad_.data();
  kernels::tree_sum(whole_grad_.exec(), {.inputs = inputs,
                                         .outputs = std::span(&output, 1),
                                         .count = layout_.numel,
                                         .in_dtype = whole_grad_.dtype(),
                                         .out_dtype = whole_grad_.dtype()});
  for (size_t part = 1; part < row_parts(); ++part) {
    row_grads_[part - 1] = Tensor();
    for (const FlatEntry& entry : layout_.entries) {
      LeafState& state = leaf(entry, part);
      state.grad = Tensor();
      state.has_value = false;
    }
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
    LeafState& state = leaf(entry);
    state.grad = entry.part_of(whole_grad_);
    state.has_value = false;
  }
  clear_padding(layout_.numel);
}

void FlatBuffer::free_whole_gradient() {
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& state = leaf(entry);
    state.has_value = false;
    if (shards_gradients()) state.grad = Tensor();
  }
  if (shards_gradients()) whole_grad_ = Tensor();
}

// ---- Several backwards in a step ----

void FlatBuffer::set_has_sum() {
  is_sum_ = true;
  if (is_sharded()) {
    shard_.gradient->has_value = true;
    shard_.gradient->zeroed.clear();
  }
}

// Whether whole_grad_ holds a sum, to which the gradients of a rank must not be added.
bool FlatBuffer::waits_with_sum() {
  if (shards_gradients()) return false;
  if (is_sharded()) return has_sum() && !kept_sum_.defined();
  if (!has_gradient()) is_sum_ = false;  // zero_grad() was called
  return is_sum_;
}

// Called at the first gradient after a sum.
void FlatBuffer::keep_sum() {
  end_backward();
  const Tensor sum = is_sharded() ? shard_.grad : whole_grad_;
  if (!is_sharded()) {  // of what has been zeroed since, nothing is kept
    for (const FlatEntry& entry : layout_.entries) {
      const LeafState& state = leaf(entry);
      if (!state.has_value) kernels::fill(state.grad.exec(), {.y = state.grad, .value = 0});
    }
  }
  fill_zeroed();
  kept_sum_ =
      empty(shared_.context, sum.shape(), sum.dtype(), MemoryTag::kGradient, "sum of gradients");
  kernels::axpby(sum.exec(), {.a = sum, .y = kept_sum_});
  is_sum_ = false;
  begin_from_zero();
}

// While a sum is kept, a parameter without a value is one whose gradient zero_grad() has dropped.
void FlatBuffer::begin_from_zero() {
  kernels::fill(whole_grad_.exec(), {.y = whole_grad_, .value = 0});
  for (const FlatEntry& entry : layout_.entries) {
    leaf(entry).has_value = true;
  }
}

// What zero_grad() was called for is no part of the sum any more.
void FlatBuffer::drop_zeroed_sum() {
  if (!kept_sum_.defined()) return;
  if (is_sharded()) {
    if (!has_sum()) kept_sum_ = Tensor();
    for (const OptimSpan& span : shard_.spans) {
      if (shard_.gradient->zeroed.erase(span.parameter) == 0 || span.count == 0) continue;
      const Tensor part = vector_slice(kept_sum_, span.offset, span.count);
      kernels::fill(part.exec(), {.y = part, .value = 0});
    }
    return;
  }
  bool any = false;
  for (const FlatEntry& entry : layout_.entries) {
    if (leaf(entry).has_value) {
      any = true;
    } else {
      const Tensor part = entry.part_of(kept_sum_);
      kernels::fill(part.exec(), {.y = part, .value = 0});
    }
  }
  if (!any) kept_sum_ = Tensor();
}

// The parts of the shard's gradient that zero_grad() was called for, where others have a value.
void FlatBuffer::fill_zeroed() {
  std::set<const Parameter*>& zeroed = shard_.gradient->zeroed;
  if (zeroed.empty()) return;
  shard_.with_gradient([&] {
    for (const OptimSpan& span : shard_.spans) {
      if (!zeroed.contains(span.parameter) || span.count == 0) continue;
      const Tensor part = vector_slice(shard_.grad, span.offset, span.count);
      kernels::fill(part.exec(), {.y = part, .value = 0});
    }
  });
  zeroed.clear();
}

void FlatBuffer::prepare_backward() {
  wait_for_step();  // its gradients may be on their way still
  end_backward();
  drop_zeroed_sum();
  parts_ready_.assign(layout_.entries.size(), 0);
  keeps_aside_ = waits_with_sum();
  if (!keeps_aside_) return;
  for (const FlatEntry& entry : layout_.entries) leaf(entry).grad = Tensor();
}

void FlatBuffer::end_backward() {
  if (!std::exchange(keeps_aside_, false)) return;
  for (const FlatEntry& entry : layout_.entries) {
    leaf(entry).grad = entry.part_of(whole_grad_);
  }
}

// ---- Reductions ----

void FlatBuffer::complete() {
  if (keeps_aside_) keep_sum();
  if (!whole_grad_.defined()) make_whole_gradient();
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& state = leaf(entry);
    if (!state.has_value) kernels::fill(state.grad.exec(), {.y = state.grad, .value = 0});
    state.has_value = true;
  }
  make_missing_row_gradients();
}

// Whether the sum over ranks goes straight to where it stays.
bool FlatBuffer::reduces_in_place() const {
  if (shared_.options.reproducible || traits_.offload.gradients) return false;
  return !shards_gradients() || (!has_sum() && !layout_.owner);
}

// Adds the gradients of what every tensor rank has, each of its own share of the rows: a binary
// tree over the ranks of this process, then over the processes. All get the sum.
void FlatBuffer::sum_repeated(const Tensor& grad, CollectiveOptions& options) {
  const size_t peers = layout_.entries.front().parameter->peers.size();
  const size_t of_rank = layout_.entries.size() / peers;
  if (peers > 1) {
    std::vector<void*> parts;
    for (size_t i = 0; i < peers; ++i) {
      parts.push_back(layout_.entries[i * of_rank].part_of(grad).data());
    }
    const std::vector<const void*> inputs(parts.begin(), parts.end());
    kernels::tree_sum(grad.exec(), {.inputs = inputs,
                                    .outputs = parts,
                                    .count = layout_.entries[of_rank].offset,
                                    .in_dtype = grad.dtype(),
                                    .out_dtype = grad.dtype()});
  }
  ProcessGroup& group = *shared_.groups.tensor;
  if (group.size() == 1) return;
  repeated_ = group.all_reduce_sum(grad, options);
  // A rank alone waits for nobody, and parts of the rows are added next.
  if (ranks().size() == 1 || row_parts() > 1 || reduces_codes()) {
    return shared_.wait(std::exchange(repeated_, Work()));
  }
  options.after = &repeated_;
}

void FlatBuffer::start_reduce() {
  complete();
  CollectiveOptions options = shared_.collective(name_, Traffic::kGradients);
  if (traits_.repeated && shared_.groups.tensor != nullptr) {
    sum_repeated(whole_grad_, options);
    for (const Tensor& grad : row_grads_) sum_repeated(grad, options);
  }
  add_row_gradients();
  if (!is_sharded() && !shared_.options.reproducible) {
    sum_ = whole_grad_;
    reduction_ = ranks().all_reduce_sum(whole_grad_, options);
  } else {
    sum_ = shards_gradients() && reduces_in_place() ? shard_.grad : own_part(whole_grad_);
    reduction_ = start_sum(options);
  }
  const bool sums_replicas = shared_.groups.replicate != nullptr &&
                             shared_.replica_gradients == ReplicaGradients::kSum;
  if (sums_replicas && sum_.numel() > 0) {
    options.after = &reduction_;
    replicas_ = shared_.groups.replicate->all_reduce_sum(sum_, options);
  }
  reducing_ = true;
}

// Starts the sum of all ranks' gradients, to sum_. An all-reduce has the bits of stage 0 over NCCL
// too, if its groups are deterministic; a reduction to the owner sends half as much.
Work FlatBuffer::start_sum(const CollectiveOptions& options) {
  ProcessGroup& group = ranks();
  if (reduces_codes()) return start_coded_sum(options);
  if (!layout_.owner) return group.reduce_scatter_sum(whole_grad_, sum_, options);
  return group.options().deterministic ? group.all_reduce_sum(whole_grad_, options)
                                       : group.reduce_sum(whole_grad_, *layout_.owner, options);
}

bool FlatBuffer::reduction_done() const {
  return reduction_.done() && replicas_.done();
}

void FlatBuffer::finish_reduce(bool last) {
  if (!reducing_) return;
  reducing_ = false;
  shared_.wait(std::exchange(repeated_, Work()));
  shared_.wait(std::exchange(reduction_, Work()));
  shared_.wait(std::exchange(replicas_, Work()));
  add_codes();
  const Tensor sum = std::exchange(sum_, Tensor());
  if (shared_.options.reproducible) {
    counter_.add(sum);
  } else {
    add_sum(sum);
  }
  if (is_sharded() || shared_.options.reproducible) free_whole_gradient();
  // A reproducible run goes on.
  if (kept_sum_.defined() && !is_sharded()) begin_from_zero();
  if (!last || shared_.options.reproducible) return;
  if (host_gradient_ == nullptr) {
    tell_complete({});
  } else if (host_gradient_->settles_itself()) {
    tell_complete(host_gradient_->arrived());
  }
}

// To the sums of earlier backwards of the step, which are the left operand in every stage.
void FlatBuffer::add_sum(const Tensor& sum) {
  if (host_gradient_ != nullptr) {
    fill_zeroed();
    host_gradient_->add(sum, /*first=*/!has_sum());
  } else if (kept_sum_.defined()) {
    kernels::axpby(sum.exec(), {.a = kept_sum_, .b = sum, .y = sum});
    kept_sum_ = Tensor();
  } else if (!reduces_in_place()) {
    fill_zeroed();
    kernels::axpby(sum.exec(), {.a = has_sum() ? shard_.grad.view() : sum.view(),
                                .b = has_sum() ? sum.view() : View{},
                                .y = shard_.grad});
  }
  set_has_sum();
}

void FlatBuffer::finish_step() {
  finish_reduce(/*last=*/true);
  if (shared_.options.reproducible) {
    const Tensor sum = counter_.take(name_);
    if (host_gradient_ != nullptr) {
      add_sum(sum);
    } else {
      take_reproducible_sum(sum);
    }
  }
  if (host_gradient_ != nullptr) host_gradient_->settle();
  tell_complete({});
}

void FlatBuffer::take_reproducible_sum(const Tensor& sum) {
  const Tensor part = is_sharded() ? shard_.grad : own_part(whole_grad_);
  Tensor before;  // the sum of earlier backwards
  if (kept_sum_.defined()) {
    before = is_sharded() ? kept_sum_ : own_part(kept_sum_);
  } else if (shards_gradients() && has_sum()) {
    fill_zeroed();
    before = part;
  }
  kernels::axpby(part.exec(), {.a = before.defined() ? before : sum,
                               .b = before.defined() ? sum.view() : View{},
                               .y = part});
  kept_sum_ = Tensor();
  set_has_sum();
  if (is_sharded()) return;
  const CollectiveOptions options = shared_.collective(name_, Traffic::kGradients);
  ProcessGroup& group = ranks();
  shared_.wait(layout_.owner ? group.broadcast(whole_grad_, *layout_.owner, options)
                             : group.all_gather(part, whole_grad_, options));
  for (const FlatEntry& entry : layout_.entries) {
    leaf(entry).has_value = true;
  }
}

// ---- Two uses of a table ----

void FlatBuffer::add_gradient_of(FlatBuffer& apart) {
  if (!apart.has_gradient()) return;
  const Tensor sum = shard_.grad, more = apart.shard_.grad;
  if (sum.numel() > 0) {
    apart.shard_.with_gradient([&] {
      shard_.with_gradient([&] { kernels::axpby(sum.exec(), {.a = sum, .b = more, .y = sum}); });
    });
  }
  for (const FlatEntry& entry : apart.layout_.entries) apart.leaf(entry).has_value = false;
  if (apart.is_sharded()) apart.shard_.gradient->has_value = false;
  if (shard_.fence != nullptr) shard_.fence->gradient_complete({});
}

void FlatBuffer::add_gradient_over(ProcessGroup& stages) {
  const bool on_device = &shard_.grad.context() == &shared_.context;
  if (shard_.grad.numel() > 0) {
    // The stages call the buffer by other names.
    const std::string tag = layout_.entries.front().parameter->full_name();
    CollectiveOptions options = shared_.collective(tag, Traffic::kGradients);
    if (!on_device) options.stream = nullptr;
    shard_.with_gradient([&] {
      shard_.grad.context().will_write(shard_.grad.data(), shard_.grad.bytes());
      shared_.wait((on_device ? stages : stages.host()).all_reduce_sum(shard_.grad, options));
    });
  }
  if (shard_.fence != nullptr) shard_.fence->gradient_complete({});
}

bool FlatBuffer::has_gradient() const {
  if (is_sharded()) return has_sum();
  return std::any_of(layout_.entries.begin(), layout_.entries.end(),
                     [this](const FlatEntry& entry) { return leaf(entry).has_value; });
}

void FlatBuffer::for_each_gradient_flag(const std::function<void(bool&)>& visit) {
  if (!traits_.trainable) return;
  if (shard_.gradient->has_value.has_value()) visit(*shard_.gradient->has_value);
  visit(is_sum_);
  for (const FlatEntry& entry : layout_.entries) visit(leaf(entry).has_value);
}

void FlatBuffer::finish_alone() {
  complete();
  add_row_gradients();
  tell_complete({});
}

// Whoever steps the shard elsewhere may fetch the gradient now. `arrived`: it is in host memory
// when that has come to pass.
void FlatBuffer::tell_complete(const Event& arrived) {
  if (traits_.use != TableUse::kOnly) return;  // the other use is to be added
  if (!told_complete_ && shard_.fence != nullptr) shard_.fence->gradient_complete(arrived);
  told_complete_ = true;
}

}  // namespace shale::comm
