#include "shale/comm/parallel/data/flat_buffer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

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
      // Both uses of a table have one layout, whatever else there is.
      layout_(flat_layout(parameters, shared.shard(traits.of_experts).size(),
                          traits.use == TableUse::kOnly ? shared.owned_buffers : 0)) {
  if (layout_.owner && traits.use == TableUse::kOnly) ++shared_.owned_buffers;
  for (const FlatEntry& entry : layout_.entries) {
    const LeafState& state = leaf(entry);
    if (state.grad.defined() || state.allocate_grad != nullptr || !state.ready_hooks.empty()) {
      throw InternalError(
          cat("unit: ", entry.parameter->full_name(), " is in data parallelism already"));
    }
  }
  shard_.name = name_;
  if (traits_.use == TableUse::kApart) {
    values_ready_ = true;  // another buffer's
    make_gradients();
    return;
  }
  const int rank = ranks().rank();
  for (const FlatEntry& entry : layout_.entries) shard_.spans.push_back(span_of(entry, rank));
  make_values();
  if (traits_.trainable) make_gradients();
  write_initial_values();
}

FlatBuffer::~FlatBuffer() {
  let_go(std::move(gather_));
  let_go(std::move(exchange_));
  let_go(std::move(repeated_));
  let_go(std::move(reduction_));
  let_go(std::move(replicas_));
}

void FlatBuffer::detach() {
  if (gathers_fp8()) unbind_values();  // codes are here
  for (const FlatEntry& entry : layout_.entries) {
    if (traits_.use == TableUse::kApart) {
      entry.parameter->keep_apart(false);
      continue;
    }
    for (size_t part = 0; part < row_parts(); ++part) {
      LeafState& state = leaf(entry, part);
      state.grad = Tensor();
      state.allocate_grad = nullptr;
      state.ready_hooks.clear();
    }
  }
}

LeafState& FlatBuffer::leaf(const FlatEntry& entry, size_t part) const {
  const Parameter& parameter = part == 0 ? *entry.parameter : *entry.parameter->copies[part - 1];
  return leaf_state(traits_.use == TableUse::kApart ? parameter.tied_value : parameter.value);
}

size_t FlatBuffer::row_parts() const {
  return layout_.entries.empty() ? 1 : layout_.entries.front().parameter->copies.size() + 1;
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
  const int64_t begin = layout_.begin_of(rank), end = begin + layout_.count_of(rank);
  const int64_t first = std::clamp(begin, entry.offset, entry.end());
  span.first = first - entry.offset;
  span.count = std::clamp(end, entry.offset, entry.end()) - first;
  span.offset = span.count > 0 ? first - begin : 0;
  return span;
}

Tensor FlatBuffer::own_part(const Tensor& whole) const {
  const int rank = ranks().rank();
  return vector_slice(whole, layout_.begin_of(rank), layout_.count_of(rank));
}

// Padding is zero in every buffer and stays so: its gradient is zero.
Tensor FlatBuffer::zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const {
  Tensor buffer = empty(memory, {numel}, dtype, tag, name_);
  kernels::fill(buffer.exec(), {.y = buffer, .value = 0});
  return buffer;
}

void FlatBuffer::make_values() {
  // Values out of codes are no masters.
  const bool has_master =
      traits_.trainable && (traits_.compute != DType::kF32 || offloaded() || gathers_codes());
  Context& device = shared_.context;
  Context& masters = offloaded() ? traits_.offload.tier->context() : device;
  const DType master = traits_.trainable ? DType::kF32 : traits_.compute;
  const MemoryTag master_tag = has_master ? MemoryTag::kOptimizer : MemoryTag::kParameter;
  if (!shards_values()) {
    values_ = zeroed(device, layout_.numel, traits_.compute, MemoryTag::kParameter);
    const Tensor part = is_sharded() ? own_part(values_) : values_;
    shard_.master = has_master ? zeroed(masters, part.numel(), master, master_tag) : part;
    if (has_master && !gathers_codes()) shard_.compute = part;
  } else {
    const int64_t count = layout_.count_of(ranks().rank());
    shard_.master = zeroed(masters, count, master, master_tag);
    if (offloaded() && !traits_.offload.parameters) {
      shard_.compute = zeroed(device, count, traits_.compute, MemoryTag::kParameter);
    }
  }
  if (offloaded()) shard_.fence = std::make_shared<StepFence>();
  // Those with other leaves, where nothing is sharded.
  if (is_sharded() || shared_.options.stage == 0) shard_.peers = shared_.peers;
  shard_.all_peers = shared_.all_peers;
  if (is_sharded()) {
    shard_.replicas = shared_.replicas;
    shard_.changing = [this] {
      if (!offloaded()) wait_for_gather();
    };
    shard_.changed = [this] {
      set_stale();
      // A step that has only begun is waited for when the values are needed.
      if (!shards_values() && !offloaded()) start_unshard();
      // Ahead of all gathers, so that none of them waits for it.
      if (gathers_fp8()) start_largest();
    };
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
  if (traits_.use == TableUse::kApart) return;
  if (shard_.compute.defined() && shard_.compute.numel() > 0) {
    if (offloaded()) {
      upload_masters(shard_.compute).hold_back(shard_.compute.exec().stream);
    } else {
      kernels::axpby(shard_.compute.exec(), {.a = shard_.master, .y = shard_.compute});
    }
  }
  for (const FlatEntry& entry : layout_.entries) entry.parameter->value.bump_version();
  if (is_sharded()) {
    set_stale();
  } else {
    values_ready_ = true;
    bind_values();
  }
}

// From the host to `part` on the device, in the compute dtype.
Event FlatBuffer::upload_masters(const Tensor& part) {
  offload::HostTier& tier = *traits_.offload.tier;
  tier.acquire(shard_.master);
  Tensor rounded = shard_.master;
  if (part.dtype() != DType::kF32) {
    rounded = tier.allocate(part.numel(), part.dtype(), MemoryTag::kWorkspace, name_);
    kernels::axpby(rounded.exec(), {.a = shard_.master, .y = rounded});
  }
  const Event uploaded = tier.upload(rounded, part, {tier.computed()});
  if (tier.on_disk()) {
    if (part.dtype() == DType::kF32) uploaded.synchronize();
    tier.release(shard_.master, /*changed=*/false);
  }
  tier.release_after(std::move(rounded), uploaded);
  return uploaded;
}

void FlatBuffer::fetch_masters() {
  const bool fetches = offloaded() && shards_values() && !shard_.compute.defined();
  // While a step is under way, who does it has the masters.
  if (!fetches || values_ready_ || gathering_ || small_shard_.defined()) return;
  traits_.offload.tier->prefetch(shard_.master);
}

void FlatBuffer::set_stale() {
  wait_for_gather();
  finish_largest();
  has_largest_ = false;
  values_ready_ = false;
  small_shard_ = Tensor();
  unbind_values();
  if (shards_values()) drop_values();
}

// ---- Values ----

void FlatBuffer::drop_values() {
  values_ = codes_ = Tensor();
}

void FlatBuffer::bind_values() {
  if (gathers_fp8()) return bind_codes();
  for (const FlatEntry& entry : layout_.entries) {
    if (entry.parameter->trainable != traits_.trainable) {
      throw ConfigError(cat("unit ", name_, ": ", entry.parameter->full_name(),
                            ": Parameter::trainable was changed after the model got its memory, "
                            "want it set before"));
    }
    entry.parameter->bind(shared_.context, values_.storage(), entry.offset, traits_.compute);
  }
}

void FlatBuffer::unbind_values() {
  for (const FlatEntry& entry : layout_.entries) entry.parameter->unbind();
}

// What this rank gives to the gather of values_. A broadcast takes it out of values_ itself.
Tensor FlatBuffer::gather_input() {
  if (small_shard_.defined()) return small_shard_;
  if (!layout_.owner && shards_values()) {
    if (shard_.compute.defined()) return shard_.compute;
    if (shard_.master.dtype() == traits_.compute && !offloaded()) return shard_.master;
  }
  Tensor part = own_part(values_);
  if (!shards_values() || part.numel() == 0) return part;
  if (offloaded()) {
    upload_masters(part).hold_back(gather_stream());
  } else if (shard_.master.dtype() == part.dtype()) {  // of frozen weights perhaps codes
    kernels::copy(part.exec(), {.x = shard_.master, .y = part});
  } else {
    kernels::axpby(part.exec(), {.a = shard_.master, .y = part});
  }
  return part;
}

// A step that goes on beside this (runtime/offload) still writes the values, or the master.
void FlatBuffer::wait_for_step() const {
  if (shard_.fence != nullptr) shard_.fence->wait(shared_.context.exec().stream);
}

// Stream of this buffer's gathers: what comes after them waits for it.
void* FlatBuffer::gather_stream() const {
  return offloaded() ? shared_.gathers->handle() : shared_.context.exec().stream;
}

void FlatBuffer::make_whole_values() {
  if (values_.defined()) return;
  values_ = empty(shared_.context, {layout_.numel}, traits_.compute, MemoryTag::kParameter, name_);
}

void FlatBuffer::start_unshard() {
  if (values_ready_ || gathering_) return;
  if (shard_.fence != nullptr) shard_.fence->wait(gather_stream());
  if (!gathers_fp8()) make_whole_values();
  CollectiveOptions options = shared_.collective(name_, Traffic::kParameters);
  if (offloaded()) {
    // What the memory was used for comes first.
    traits_.offload.tier->computed().hold_back(gather_stream());
    options.stream = gather_stream();
  }
  gather_ = start_gather(options);
  if (offloaded()) gathered_ = shared_.gathers->mark();
  gathering_ = true;
}

Work FlatBuffer::start_gather(const CollectiveOptions& options) {
  if (gathers_fp8()) return start_fp8_gather(options);
  if (gathers_codes() && !small_shard_.defined()) return start_coded_gather(options);
  ProcessGroup& group = small_shard_.defined() ? *shared_.groups.reshard : ranks();
  const Tensor part = gather_input();
  return layout_.owner ? group.broadcast(values_, *layout_.owner, options)
                       : group.all_gather(part, values_, options);
}

void FlatBuffer::wait_for_gather() {
  if (!gathering_) return;
  gathering_ = false;
  const Work gather = std::exchange(gather_, Work());
  shared_.wait(gather);
  decode_values();
  if (!offloaded()) return;
  // For this gather only: the others of that stream may be ahead of their use.
  gather.hold(shared_.context.exec().stream);
  gathered_.hold_back(shared_.context.exec().stream);
}

void FlatBuffer::unshard() {
  if (values_ready_) return wait_for_step();
  start_unshard();
  wait_for_gather();
  small_shard_ = Tensor();
  values_ready_ = true;
  bind_values();
}

void FlatBuffer::finish_gather() {
  if (!shards_values()) unshard();
}

void FlatBuffer::reshard(bool to_small_group) {
  const Tensor& whole = gathers_fp8() ? codes_ : values_;
  if (!shards_values() || !whole.defined() || (to_small_group && layout_.owner)) return;
  wait_for_gather();
  if (to_small_group && values_ready_) {
    const ProcessGroup& group = *shared_.groups.reshard;
    const int64_t count = layout_.numel / group.size();
    small_shard_ = empty(shared_.context, {count}, whole.dtype(), MemoryTag::kParameter, name_);
    const Tensor part = vector_slice(whole, group.rank() * count, count);
    shared_.context.copy(small_shard_.data(), part.data(), part.bytes());
  }
  values_ready_ = false;
  unbind_values();
  drop_values();
}

}  // namespace shale::comm
