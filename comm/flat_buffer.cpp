#include "comm/flat_buffer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/elementwise.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

// Its buffers are about to disappear. While an exception unwinds, dropping the handle gives the
// collective up; the error that got us here is on its way already.
void let_go(Work work) {
  if (std::uncaught_exceptions() > 0) return;
  try {
    work.wait();
  } catch (const std::exception&) {
  }
}

}  // namespace

FlatBuffer::FlatBuffer(ShardingContext& shared, std::string name, const BufferTraits& traits,
                       const std::vector<Parameter*>& parameters)
    : shared_(shared),
      name_(std::move(name)),
      traits_(traits),
      layout_(flat_layout(parameters, shared.groups.shard->size())) {
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& leaf = leaf_state(entry.parameter->value);
    if (leaf.grad.defined() || leaf.allocate_grad != nullptr || !leaf.ready_hooks.empty()) {
      throw InternalError(
          cat("unit: ", entry.parameter->full_name(), " is in data parallelism already"));
    }
  }
  shard_.name = name_;
  const int rank = shared_.groups.shard->rank();
  for (const FlatEntry& entry : layout_.entries) shard_.spans.push_back(span_of(entry, rank));
  make_values();
  if (traits_.trainable) make_gradients();
  write_initial_values();
}

FlatBuffer::~FlatBuffer() {
  let_go(std::move(gather_));
  let_go(std::move(reduction_));
}

void FlatBuffer::detach() {
  for (const FlatEntry& entry : layout_.entries) {
    LeafState& leaf = leaf_state(entry.parameter->value);
    leaf.grad = Tensor();
    leaf.allocate_grad = nullptr;
    leaf.ready_hooks.clear();
  }
}

bool FlatBuffer::shards_values() const {
  return shared_.options.stage >= 3 && !traits_.persistent;
}

bool FlatBuffer::shards_gradients() const {
  return shared_.options.stage >= 2;
}

bool FlatBuffer::is_sharded() const {
  return traits_.trainable ? shared_.options.stage >= 1 : shards_values();
}

OptimSpan FlatBuffer::span_of(const FlatEntry& entry, int rank) const {
  OptimSpan span{
      .parameter = entry.parameter, .first = 0, .offset = entry.offset, .count = entry.numel()};
  if (!is_sharded()) return span;
  const int64_t begin = rank * layout_.shard_numel, end = begin + layout_.shard_numel;
  const int64_t first = std::clamp(begin, entry.offset, entry.end());
  span.first = first - entry.offset;
  span.count = std::clamp(end, entry.offset, entry.end()) - first;
  span.offset = span.count > 0 ? first - begin : 0;
  return span;
}

Tensor FlatBuffer::own_part(const Tensor& whole) const {
  const int64_t rank = shared_.groups.shard->rank();
  return vector_slice(whole, rank * layout_.shard_numel, layout_.shard_numel);
}

// Padding is zero in every buffer and stays so: its gradient is zero.
Tensor FlatBuffer::zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const {
  Tensor buffer = empty(memory, {numel}, dtype, tag, name_);
  kernels::fill(buffer.exec(), {.y = buffer, .value = 0});
  return buffer;
}

void FlatBuffer::make_values() {
  const bool has_master = traits_.trainable && (traits_.compute != DType::kF32 || offloaded());
  Context& device = shared_.context;
  Context& masters = offloaded() ? traits_.offload.tier->context() : device;
  const DType master = traits_.trainable ? DType::kF32 : traits_.compute;
  const MemoryTag master_tag = has_master ? MemoryTag::kOptimizer : MemoryTag::kParameter;
  if (!shards_values()) {
    values_ = zeroed(device, layout_.numel, traits_.compute, MemoryTag::kParameter);
    const Tensor part = is_sharded() ? own_part(values_) : values_;
    shard_.master = has_master ? zeroed(masters, part.numel(), master, master_tag) : part;
    if (has_master) shard_.compute = part;
  } else {
    shard_.master = zeroed(masters, layout_.shard_numel, master, master_tag);
    if (offloaded() && !traits_.offload.parameters) {
      shard_.compute = zeroed(device, layout_.shard_numel, traits_.compute, MemoryTag::kParameter);
    }
  }
  if (offloaded()) shard_.fence = std::make_shared<StepFence>();
  if (is_sharded()) {
    shard_.changed = [this] {
      set_stale();
      // A step that has only begun is waited for when the values are needed.
      if (!shards_values() && !offloaded()) start_unshard();
    };
  }
}

void FlatBuffer::make_gradients() {
  if (!shards_gradients()) {
    whole_grad_ = zeroed(shared_.context, layout_.numel, traits_.reduce, MemoryTag::kGradient);
    shard_.grad = is_sharded() ? own_part(whole_grad_) : whole_grad_;
  } else {
    Context& memory = traits_.offload.gradients ? traits_.offload.tier->context() : shared_.context;
    shard_.grad = zeroed(memory, layout_.shard_numel, traits_.reduce, MemoryTag::kGradient);
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

void FlatBuffer::write_initial_values() {
  for (const FlatEntry& entry : layout_.entries) {
    entry.parameter->bind(shared_.context, nullptr, entry.offset, traits_.compute);
  }
  for (const OptimSpan& span : shard_.spans) {
    if (span.count == 0) continue;
    span.parameter->write_initial(shard_.master.exec(), shared_.options.seed, span.first,
                                  vector_slice(shard_.master, span.offset, span.count));
  }
  masters_changed();
}

void FlatBuffer::masters_changed() {
  if (shard_.compute.defined()) round_masters_into(shard_.compute);
  for (const FlatEntry& entry : layout_.entries) entry.parameter->value.bump_version();
  if (is_sharded()) {
    set_stale();
  } else {
    values_ready_ = true;
    bind_values();
  }
}

// `part` lies on the device, in the compute dtype.
void FlatBuffer::round_masters_into(const Tensor& part) {
  if (!offloaded()) {
    kernels::axpby(part.exec(), {.a = shard_.master, .y = part});
    return;
  }
  offload::HostTier& tier = *traits_.offload.tier;
  Tensor rounded = shard_.master;
  if (part.dtype() != DType::kF32) {
    rounded = tier.allocate(part.numel(), part.dtype(), MemoryTag::kWorkspace, name_);
    kernels::axpby(rounded.exec(), {.a = shard_.master, .y = rounded});
  }
  const Event uploaded = tier.upload(rounded, part, {tier.computed()});
  uploaded.hold_back(part.exec().stream);
  tier.release_after(std::move(rounded), uploaded);
}

void FlatBuffer::set_stale() {
  wait_for_gather();
  values_ready_ = false;
  small_shard_ = Tensor();
  unbind_values();
  if (shards_values()) values_ = Tensor();
}

// ---- Values ----

void FlatBuffer::bind_values() {
  for (const FlatEntry& entry : layout_.entries) {
    entry.parameter->bind(shared_.context, values_.storage(), entry.offset, traits_.compute);
  }
}

void FlatBuffer::unbind_values() {
  for (const FlatEntry& entry : layout_.entries) entry.parameter->unbind();
}

// What this rank gives to the gather of values_.
Tensor FlatBuffer::gather_input() {
  if (small_shard_.defined()) return small_shard_;
  if (shards_values() && shard_.compute.defined()) return shard_.compute;
  if (shards_values() && shard_.master.dtype() == traits_.compute && !offloaded()) {
    return shard_.master;
  }
  Tensor part = own_part(values_);
  if (shards_values()) round_masters_into(part);
  return part;
}

// A step that goes on beside this (runtime/offload) still writes the values, or the master.
void FlatBuffer::wait_for_step() const {
  if (shard_.fence != nullptr) shard_.fence->wait();
}

void FlatBuffer::start_unshard() {
  if (values_ready_ || gathering_) return;
  wait_for_step();
  if (!values_.defined()) {
    values_ =
        empty(shared_.context, {layout_.numel}, traits_.compute, MemoryTag::kParameter, name_);
  }
  ProcessGroup& group = small_shard_.defined() ? *shared_.groups.reshard : *shared_.groups.shard;
  gather_ =
      group.all_gather(gather_input(), values_, shared_.collective(name_, Traffic::kParameters));
  gathering_ = true;
}

void FlatBuffer::wait_for_gather() {
  if (!gathering_) return;
  gathering_ = false;
  shared_.wait(std::exchange(gather_, Work()));
}

void FlatBuffer::unshard() {
  if (values_ready_) return wait_for_step();
  start_unshard();
  wait_for_gather();
  small_shard_ = Tensor();
  values_ready_ = true;
  bind_values();
}

void FlatBuffer::reshard(bool to_small_group) {
  if (!shards_values() || !values_.defined()) return;
  wait_for_gather();
  if (to_small_group && values_ready_) {
    const ProcessGroup& group = *shared_.groups.reshard;
    const int64_t count = layout_.numel / group.size();
    small_shard_ = empty(shared_.context, {count}, traits_.compute, MemoryTag::kParameter, name_);
    const Tensor part = vector_slice(values_, group.rank() * count, count);
    shared_.context.copy(small_shard_.data(), part.data(), part.bytes());
  }
  values_ready_ = false;
  unbind_values();
  values_ = Tensor();
}

// ---- Gradients ----

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

// Whether the sum over ranks goes straight to where it stays.
bool FlatBuffer::reduces_in_place() const {
  if (shared_.options.reproducible || traits_.offload.gradients) return false;
  return !shards_gradients() || !*shard_.has_grad;
}

void FlatBuffer::start_reduce() {
  if (shared_.options.stage == 1 && !shared_.options.reproducible && *shard_.has_grad) {
    throw InternalError(cat(name_,
                            ": a second backward reduces gradients before zero_grad(), which stage "
                            "1 cannot add to the first; want all but the last without reduction"));
  }
  complete();
  const CollectiveOptions options = shared_.collective(name_, Traffic::kGradients);
  ProcessGroup& group = *shared_.groups.shard;
  if (!is_sharded() && !shared_.options.reproducible) {
    reduction_ = group.all_reduce_sum(whole_grad_, options);
  } else {
    const Tensor to =
        shards_gradients() && reduces_in_place() ? shard_.grad : own_part(whole_grad_);
    reduction_ = group.reduce_scatter_sum(whole_grad_, to, options);
  }
  reducing_ = true;
}

void FlatBuffer::finish_reduce() {
  if (!reducing_) return;
  reducing_ = false;
  shared_.wait(std::exchange(reduction_, Work()));
  const bool whole = !is_sharded() && !shared_.options.reproducible;
  if (shared_.groups.replicate != nullptr) {
    const Tensor sum = whole                ? whole_grad_
                       : reduces_in_place() ? shard_.grad
                                            : own_part(whole_grad_);
    shared_.wait(shared_.groups.replicate->all_reduce_sum(
        sum, shared_.collective(name_, Traffic::kGradients)));
  }
  if (whole) return;
  if (shared_.options.reproducible) {
    counter_.add(own_part(whole_grad_));
  } else if (traits_.offload.gradients) {
    add_to_host_gradient(own_part(whole_grad_));
  } else if (!reduces_in_place()) {
    const Tensor part = own_part(whole_grad_);
    kernels::axpby(part.exec(), {.a = shard_.grad, .b = part, .y = shard_.grad});
  }
  if (is_sharded()) *shard_.has_grad = true;
  free_whole_gradient();
}

// `part` lies on the device and may be dropped. The copy runs beside backward.
void FlatBuffer::add_to_host_gradient(const Tensor& part) {
  offload::HostTier& tier = *traits_.offload.tier;
  settle_host_gradient();
  Tensor to = shard_.grad;
  if (*shard_.has_grad) {
    to = to_add_ = tier.allocate(part.numel(), part.dtype(), MemoryTag::kGradient, name_);
  }
  gradient_sent_ = tier.download(part, to, {tier.computed()});
  *shard_.has_grad = true;
}

void FlatBuffer::settle_host_gradient() {
  gradient_sent_.synchronize();
  if (!to_add_.defined()) return;
  kernels::axpby(to_add_.exec(), {.a = shard_.grad, .b = to_add_, .y = shard_.grad});
  to_add_ = Tensor();
}

void FlatBuffer::finish_step() {
  finish_reduce();
  settle_host_gradient();
  if (!shared_.options.reproducible) return;
  const Tensor sum = counter_.take(name_);
  if (traits_.offload.gradients) {
    *shard_.has_grad = false;
    add_to_host_gradient(sum);
    settle_host_gradient();
    return;
  }
  const Tensor part = is_sharded() ? shard_.grad : own_part(whole_grad_);
  kernels::axpby(part.exec(), {.a = sum, .y = part});
  if (is_sharded()) return;
  shared_.wait(shared_.groups.shard->all_gather(part, whole_grad_,
                                                shared_.collective(name_, Traffic::kGradients)));
  for (const FlatEntry& entry : layout_.entries)
    leaf_state(entry.parameter->value).has_value = true;
}

}  // namespace shale::comm
