#include "shale/comm/parallel/data/flat_values.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {

FlatValues::FlatValues(const BufferSpec& spec, OptimShard& shard)
    : spec_(spec), shard_(shard), coded_(spec), fp8_(spec, shard) {
  ShardingContext& shared = spec_.shared;
  const BufferTraits& traits = spec_.traits;
  // Values that were decoded from codes are too inexact to serve as masters.
  const bool has_master = traits.trainable && (traits.compute != DType::kF32 || spec_.offloaded() ||
                                               spec_.gathers_codes());
  Context& device = shared.context();
  Context& masters = spec_.offloaded() ? traits.offload.tier->context() : device;
  const DType master = traits.trainable ? DType::kF32 : traits.compute;
  const MemoryTag master_tag = has_master ? MemoryTag::kOptimizer : MemoryTag::kParameter;
  if (!spec_.shards_values()) {
    values_ = spec_.zeroed(device, spec_.layout.numel, traits.compute, MemoryTag::kParameter);
    const Tensor part = spec_.is_sharded() ? spec_.own_part(values_) : values_;
    shard_.master = has_master ? spec_.zeroed(masters, part.numel(), master, master_tag) : part;
    if (has_master && !spec_.gathers_codes()) shard_.compute = part;
  } else {
    const int64_t count = spec_.layout.count_of(spec_.ranks().rank());
    shard_.master = spec_.zeroed(masters, count, master, master_tag);
    if (spec_.offloaded() && !traits.offload.parameters) {
      shard_.compute = spec_.zeroed(device, count, traits.compute, MemoryTag::kParameter);
    }
  }
  if (spec_.offloaded()) shard_.fence = std::make_shared<StepFence>();
  // Stage 0 shards nothing, so in stage 0 the peers are the tensor ranks.
  if (spec_.is_sharded() || shared.options.stage == 0) shard_.peers = shared.peers;
  shard_.all_peers = shared.all_peers;
  if (!spec_.is_sharded()) return;
  shard_.replicas = shared.replicas;
  shard_.changing = [this] {
    if (!spec_.offloaded()) wait_for_gather();
  };
  shard_.changed = [this] {
    set_stale();
    // An offloaded optimizer step may still run, so its gather starts at the first use of the
    // values.
    if (!spec_.shards_values() && !spec_.offloaded()) start_unshard();
    // Start the exchange of the largest values before all gathers, so that no gather waits for it.
    if (spec_.gathers_fp8()) fp8_.start_exchange();
  };
}

void FlatValues::write_initial() {
  for (const FlatEntry& entry : spec_.layout.entries) {
    entry.parameter->bind(spec_.shared.context(), nullptr, entry.offset, spec_.traits.compute);
  }
  for (const OptimSpan& span : shard_.spans) {
    if (span.count == 0) continue;
    span.parameter->write_initial(shard_.master.exec(), spec_.shared.options.seed, span.first,
                                  vector_slice(shard_.master, span.offset, span.count));
  }
  masters_changed();
}

void FlatValues::masters_changed() {
  if (shard_.compute.defined() && shard_.compute.numel() > 0) {
    if (spec_.offloaded()) {
      upload_masters(shard_.compute).hold_back(shard_.compute.exec().stream);
    } else {
      kernels::axpby(shard_.compute.exec(), {.a = shard_.master, .y = shard_.compute});
    }
  }
  for (const FlatEntry& entry : spec_.layout.entries) entry.parameter->value.bump_version();
  if (spec_.is_sharded()) {
    set_stale();
  } else {
    ready_ = true;
    bind_values();
  }
}

// Uploads the masters to `part`, which is on the device, rounded to its dtype.
Event FlatValues::upload_masters(const Tensor& part) {
  offload::HostTier& tier = *spec_.traits.offload.tier;
  tier.acquire(shard_.master);
  Tensor rounded = shard_.master;
  if (part.dtype() != DType::kF32) {
    rounded = tier.allocate(part.numel(), part.dtype(), MemoryTag::kWorkspace, spec_.name);
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

void FlatValues::fetch_masters() {
  const bool fetches = spec_.offloaded() && spec_.shards_values() && !shard_.compute.defined();
  // The masters are not needed if the gather is done or running, or if it reads small_shard_. An
  // optimizer step that is running has fetched the masters itself.
  if (!fetches || ready_ || gathering_ || small_shard_.defined()) return;
  spec_.traits.offload.tier->prefetch(shard_.master);
}

void FlatValues::set_stale() {
  wait_for_gather();
  fp8_.masters_changed();
  ready_ = false;
  small_shard_ = Tensor();
  unbind();
  if (spec_.shards_values()) free_values();
}

void FlatValues::free_values() {
  values_ = Tensor();
  fp8_.free_codes();
}

void FlatValues::bind_values() {
  if (spec_.gathers_fp8()) return fp8_.bind([this] { return allocate_values(); });
  for (const FlatEntry& entry : spec_.layout.entries) {
    if (entry.parameter->trainable != spec_.traits.trainable) {
      throw ConfigError(cat("unit ", spec_.name, ": ", entry.parameter->full_name(),
                            ": Parameter::trainable was changed after the model got its memory; "
                            "set it before"));
    }
    entry.parameter->bind(spec_.shared.context(), values_.storage(), entry.offset,
                          spec_.traits.compute);
  }
}

void FlatValues::unbind() {
  for (const FlatEntry& entry : spec_.layout.entries) entry.parameter->unbind();
}

// Returns this rank's input to the gather. It is the shard, if that has the right dtype. Otherwise
// it is this rank's part of values_, written from the masters.
Tensor FlatValues::gather_input() {
  if (small_shard_.defined()) return small_shard_;
  if (!spec_.layout.owner && spec_.shards_values()) {
    if (shard_.compute.defined()) return shard_.compute;
    if (shard_.master.dtype() == spec_.traits.compute && !spec_.offloaded()) return shard_.master;
  }
  Tensor part = spec_.own_part(values_);
  if (!spec_.shards_values() || part.numel() == 0) return part;
  if (spec_.offloaded()) {
    upload_masters(part).hold_back(gather_stream());
  } else if (shard_.master.dtype() == part.dtype()) {  // such as codes of frozen weights
    kernels::copy(part.exec(), {.x = shard_.master, .y = part});
  } else {
    kernels::axpby(part.exec(), {.a = shard_.master, .y = part});
  }
  return part;
}

// Waits for an offloaded optimizer step (runtime/offload), which may write values or masters.
void FlatValues::wait_for_step() const {
  if (shard_.fence != nullptr) shard_.fence->wait(spec_.shared.context().exec().stream);
}

// Stream on which this buffer is gathered. Work that is queued on it later waits for the gather.
void* FlatValues::gather_stream() const {
  const ShardingContext& shared = spec_.shared;
  return spec_.offloaded() ? shared.gathers->handle() : shared.context().exec().stream;
}

Tensor FlatValues::allocate_values() {
  if (!values_.defined()) {
    values_ = empty(spec_.shared.context(), {spec_.layout.numel}, spec_.traits.compute,
                    MemoryTag::kParameter, spec_.name);
  }
  return values_;
}

void FlatValues::start_unshard() {
  if (ready_ || gathering_) return;
  if (shard_.fence != nullptr) shard_.fence->wait(gather_stream());
  if (!spec_.gathers_fp8()) allocate_values();
  CollectiveOptions options = spec_.shared.collective(spec_.name, Traffic::kParameters);
  if (spec_.offloaded()) {
    // The gather must wait for queued work that still uses the memory into which it writes.
    spec_.traits.offload.tier->computed().hold_back(gather_stream());
    options.stream = gather_stream();
  }
  gather_ = start_gather(options);
  if (spec_.offloaded()) gathered_ = spec_.shared.gathers->mark();
  gathering_ = true;
}

Work FlatValues::start_gather(const CollectiveOptions& options) {
  if (spec_.gathers_fp8()) return fp8_.start(small_shard_, options);
  if (spec_.gathers_codes() && !small_shard_.defined()) return coded_.start(shard_.master, options);
  ProcessGroup& group = small_shard_.defined() ? *spec_.shared.groups.reshard : spec_.ranks();
  const Tensor part = gather_input();
  return spec_.layout.owner ? group.broadcast(values_, *spec_.layout.owner, options)
                            : group.all_gather(part, values_, options);
}

void FlatValues::wait_for_gather() {
  if (!gathering_) return;
  gathering_ = false;
  const Work gather = std::exchange(gather_, Work());
  spec_.shared.wait(gather);
  coded_.decode(values_);
  if (!spec_.offloaded()) return;
  // Make the compute stream wait for this gather only. Later ones on its stream may be prefetches.
  gather.hold(spec_.shared.context().exec().stream);
  gathered_.hold_back(spec_.shared.context().exec().stream);
}

void FlatValues::unshard() {
  if (ready_) return wait_for_step();
  start_unshard();
  wait_for_gather();
  small_shard_ = Tensor();
  ready_ = true;
  bind_values();
}

void FlatValues::reshard(bool to_small_group) {
  const Tensor& whole = spec_.gathers_fp8() ? fp8_.codes() : values_;
  if (!spec_.shards_values() || !whole.defined() || (to_small_group && spec_.layout.owner)) return;
  wait_for_gather();
  if (to_small_group && ready_) {
    Context& context = spec_.shared.context();
    const ProcessGroup& group = *spec_.shared.groups.reshard;
    const int64_t count = spec_.layout.numel / group.size();
    small_shard_ = empty(context, {count}, whole.dtype(), MemoryTag::kParameter, spec_.name);
    const Tensor part = vector_slice(whole, group.rank() * count, count);
    context.copy(small_shard_.data(), part.data(), part.bytes());
  }
  ready_ = false;
  unbind();
  free_values();
}

}  // namespace shale::comm
