#include "shale/comm/parallel/data/flat_gradient.h"

#include <utility>
#include <vector>

#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"

namespace shale::comm {

GradientReduction::~GradientReduction() {
  let_go(std::move(repeated_));
  let_go(std::move(reduction_));
  let_go(std::move(replicas_));
}

void GradientReduction::start_repeated(const Tensor& grad) {
  ShardingContext& shared = spec_.shared;
  if (!spec_.traits.repeated || shared.groups.tensor == nullptr) return;
  const std::vector<FlatEntry>& entries = spec_.layout.entries;
  const size_t peers = entries.front().parameter->peers.size();
  const size_t of_rank = entries.size() / peers;
  if (peers > 1) {
    std::vector<void*> parts;
    for (size_t i = 0; i < peers; ++i) parts.push_back(entries[i * of_rank].part_of(grad).data());
    const std::vector<const void*> inputs(parts.begin(), parts.end());
    kernels::tree_sum(grad.exec(), {.inputs = inputs,
                                    .outputs = parts,
                                    .count = entries[of_rank].offset,
                                    .in_dtype = grad.dtype(),
                                    .out_dtype = grad.dtype()});
  }
  ProcessGroup& group = *shared.groups.tensor;
  if (group.size() == 1) return;
  repeated_ = group.all_reduce_sum(grad, shared.collective(spec_.name, Traffic::kGradients));
  // Wait now if kernels read this sum before the next collective, or if there is no later
  // collective, which could wait for it.
  if (spec_.ranks().size() == 1 || spec_.row_parts() > 1 || spec_.reduces_codes()) {
    shared.wait(std::exchange(repeated_, Work()));
  }
}

void GradientReduction::start(const Tensor& whole, const Tensor& sum) {
  ShardingContext& shared = spec_.shared;
  CollectiveOptions options = shared.collective(spec_.name, Traffic::kGradients);
  options.after = &repeated_;
  reduction_ = start_sum(whole, sum, options);
  const bool sums_replicas =
      shared.groups.replicate != nullptr && shared.replica_gradients == ReplicaGradients::kSum;
  if (sums_replicas && sum.numel() > 0) {
    options.after = &reduction_;
    replicas_ = shared.groups.replicate->all_reduce_sum(sum, options);
  }
  sum_ = sum;
}

// Starts the sum of a buffer. A buffer with an owner needs the sum on that rank only, and a
// reduction to it sends half as much as an all-reduce. Deterministic groups (NCCL) use an
// all-reduce anyway, because it has the bits of stage 0.
Work GradientReduction::start_sum(const Tensor& whole, const Tensor& sum,
                                  const CollectiveOptions& options) {
  ProcessGroup& group = spec_.ranks();
  if (spec_.sums_everywhere()) return group.all_reduce_sum(whole, options);
  if (spec_.reduces_codes()) return coded_.start(whole, options);
  if (!spec_.layout.owner) return group.reduce_scatter_sum(whole, sum, options);
  return group.options().deterministic ? group.all_reduce_sum(whole, options)
                                       : group.reduce_sum(whole, *spec_.layout.owner, options);
}

Tensor GradientReduction::finish() {
  Tensor sum = std::exchange(sum_, Tensor());
  ShardingContext& shared = spec_.shared;
  shared.wait(std::exchange(repeated_, Work()));
  shared.wait(std::exchange(reduction_, Work()));
  shared.wait(std::exchange(replicas_, Work()));
  coded_.add_to(sum);
  return sum;
}

FlatGradient::FlatGradient(const BufferSpec& spec, OptimShard& shard)
    : spec_(spec),
      shard_(shard),
      unsharded_(spec, [this] { keep_sum(); }),
      accumulator_(spec, shard, unsharded_),
      reduction_(spec) {}

void FlatGradient::prepare_backward() {
  // The optimizer step of an offloaded shard may still read the gradient.
  if (shard_.fence != nullptr) shard_.fence->wait(spec_.shared.context().exec().stream);
  end_backward();
  accumulator_.drop_zeroed();
  unsharded_.begin_backward();
  keeps_aside_ = accumulator_.must_keep();
  if (keeps_aside_) unsharded_.unbind();
}

void FlatGradient::end_backward() {
  if (std::exchange(keeps_aside_, false)) unsharded_.bind();
}

void FlatGradient::keep_sum() {
  end_backward();
  accumulator_.keep();
}

void FlatGradient::start_reduce() {
  if (keeps_aside_) keep_sum();
  unsharded_.complete();
  reduction_.start_repeated(unsharded_.whole());
  for (const Tensor& grad : unsharded_.of_copies()) reduction_.start_repeated(grad);
  unsharded_.add_copies();
  reduction_.start(unsharded_.whole(), accumulator_.destination());
}

void FlatGradient::finish_reduce(bool last) {
  if (!reduction_.is_running()) return;
  accumulator_.add(reduction_.finish());
  const std::optional<Event> completion = accumulator_.completion();
  if (last && completion) tell_complete(*completion);
}

void FlatGradient::finish_step() {
  finish_reduce(/*last=*/true);
  accumulator_.finish_step();
  tell_complete({});
}

void FlatGradient::finish_alone() {
  if (keeps_aside_) keep_sum();
  unsharded_.complete();
  unsharded_.add_copies();
  tell_complete({});
}

void FlatGradient::add(FlatGradient& apart) {
  if (!apart.accumulator_.has_gradient()) return;
  const Tensor sum = shard_.grad, more = apart.shard_.grad;
  if (sum.numel() > 0) {
    apart.shard_.with_gradient([&] {
      shard_.with_gradient([&] { kernels::axpby(sum.exec(), {.a = sum, .b = more, .y = sum}); });
    });
  }
  apart.accumulator_.clear();
  if (shard_.fence != nullptr) shard_.fence->gradient_complete({});
}

void FlatGradient::add_over(ProcessGroup& stages) {
  ShardingContext& shared = spec_.shared;
  const Tensor& grad = shard_.grad;
  const bool on_device = &grad.context() == &shared.context();
  if (grad.numel() > 0) {
    // Use a parameter's name as the tag, because the buffer's name differs between pipeline stages.
    const std::string tag = spec_.layout.entries.front().parameter->full_name();
    CollectiveOptions options = shared.collective(tag, Traffic::kGradients);
    if (!on_device) options.stream = nullptr;
    shard_.with_gradient([&] {
      grad.context().will_write(grad.data(), grad.bytes());
      shared.wait((on_device ? stages : stages.host()).all_reduce_sum(grad, options));
    });
  }
  if (shard_.fence != nullptr) shard_.fence->gradient_complete({});
}

// Tells an optimizer that updates the shard on the host that it may fetch the gradient: now, or
// after `arrived` if the gradient is in host memory.
void FlatGradient::tell_complete(const Event& arrived) {
  if (spec_.traits.use != TableUse::kOnly) return;  // the other use's gradient is still missing
  if (!told_complete_ && shard_.fence != nullptr) shard_.fence->gradient_complete(arrived);
  told_complete_ = true;
}

}  // namespace shale::comm
