#include "shale/comm/parallel/data/gradient_accumulator.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {

UnshardedGradient::UnshardedGradient(const BufferSpec& spec,
                                     const std::function<void()>& before_first)
    : spec_(spec), of_copies_(spec.row_parts() - 1) {
  for (const FlatEntry& entry : spec_.layout.entries) {
    const LeafState& state = spec_.leaf(entry);
    if (state.grad.defined() || state.allocate_grad != nullptr || !state.ready_hooks.empty()) {
      throw InternalError(cat("unit: ", entry.parameter->full_name(),
                              " already belongs to a unit; shard it only once"));
    }
  }
  for (const FlatEntry& entry : spec_.layout.entries) {
    LeafState& state = spec_.leaf(entry);
    state.has_value = false;
    state.allocate_grad = [this, &entry, before_first] {
      spec_.shards_gradients() ? allocate() : before_first();
      return spec_.leaf(entry).grad;
    };
    for (size_t part = 1; part < spec_.row_parts(); ++part) {
      spec_.leaf(entry, part).allocate_grad = [this, &entry, part] {
        allocate_copy(part);
        return spec_.leaf(entry, part).grad;
      };
    }
  }
  begin_backward();
  if (spec_.shards_gradients()) return;
  whole_ = spec_.zeroed(spec_.shared.context(), spec_.layout.numel, spec_.traits.reduce,
                        MemoryTag::kGradient);
  bind();
}

void UnshardedGradient::detach() {
  for (const FlatEntry& entry : spec_.layout.entries) {
    for (size_t part = 0; part < spec_.row_parts(); ++part) {
      LeafState& state = spec_.leaf(entry, part);
      state.grad = Tensor();
      state.allocate_grad = nullptr;
      state.ready_hooks.clear();
    }
  }
}

void UnshardedGradient::add_ready_hook(const std::function<void(const FlatEntry&)>& ready) {
  for (const FlatEntry& entry : spec_.layout.entries) {
    for (size_t part = 0; part < spec_.row_parts(); ++part) {
      spec_.leaf(entry, part).ready_hooks.push_back([this, ready, &entry] {
        const auto index = static_cast<size_t>(&entry - spec_.layout.entries.data());
        const size_t parts = spec_.row_parts();
        if (parts == 1 || ++parts_ready_[index] == parts) ready(entry);
      });
    }
  }
}

void UnshardedGradient::bind() {
  for (const FlatEntry& entry : spec_.layout.entries) {
    spec_.leaf(entry).grad = entry.part_of(whole_);
  }
}

void UnshardedGradient::unbind() {
  for (const FlatEntry& entry : spec_.layout.entries) spec_.leaf(entry).grad = Tensor();
}

bool UnshardedGradient::has_value(const FlatEntry& entry) const {
  return spec_.leaf(entry).has_value;
}

bool UnshardedGradient::has_any_value() const {
  return std::any_of(spec_.layout.entries.begin(), spec_.layout.entries.end(),
                     [this](const FlatEntry& entry) { return has_value(entry); });
}

void UnshardedGradient::for_each_flag(const std::function<void(bool&)>& visit) {
  for (const FlatEntry& entry : spec_.layout.entries) visit(spec_.leaf(entry).has_value);
}

void UnshardedGradient::allocate() {
  ShardingContext& shared = spec_.shared;
  shared.before_gradient();
  whole_ = empty(shared.context(), {spec_.layout.numel}, spec_.traits.reduce, MemoryTag::kGradient,
                 spec_.name);
  zero_padding(spec_.layout, whole_);
  bind();
  for_each_flag([](bool& has_value) { has_value = false; });
}

// Allocates zeros, because the padding of a copy must be zero.
void UnshardedGradient::allocate_copy(size_t part) {
  Tensor& grad = of_copies_[part - 1];
  grad = spec_.zeroed(spec_.shared.context(), spec_.layout.numel, spec_.traits.reduce,
                      MemoryTag::kGradient);
  for (const FlatEntry& entry : spec_.layout.entries) {
    LeafState& state = spec_.leaf(entry, part);
    state.grad = entry.part_of(grad);
    state.has_value = false;
  }
}

void UnshardedGradient::fill_missing() {
  for (const FlatEntry& entry : spec_.layout.entries) {
    const LeafState& state = spec_.leaf(entry);
    if (!state.has_value) comm::set_to_zero(state.grad);
  }
}

void UnshardedGradient::set_to_zero() {
  comm::set_to_zero(whole_);
  for_each_flag([](bool& has_value) { has_value = true; });
}

void UnshardedGradient::complete() {
  if (!whole_.defined()) allocate();
  fill_missing();
  for_each_flag([](bool& has_value) { has_value = true; });
  // If no copy has a tensor, whole_ already has the gradients of all rows.
  const auto defined = [](const Tensor& grad) { return grad.defined(); };
  if (std::none_of(of_copies_.begin(), of_copies_.end(), defined)) return;
  for (size_t part = 1; part < spec_.row_parts(); ++part) {
    if (!of_copies_[part - 1].defined()) allocate_copy(part);
  }
}

void UnshardedGradient::add_copies() {
  if (of_copies_.empty() || !of_copies_.front().defined()) return;
  std::vector<const void*> inputs = {whole_.data()};
  for (const Tensor& grad : of_copies_) inputs.push_back(grad.data());
  void* const output = whole_.data();
  kernels::tree_sum(whole_.exec(), {.inputs = inputs,
                                    .outputs = std::span(&output, 1),
                                    .count = spec_.layout.numel,
                                    .in_dtype = whole_.dtype(),
                                    .out_dtype = whole_.dtype()});
  for (size_t part = 1; part < spec_.row_parts(); ++part) {
    of_copies_[part - 1] = Tensor();
    for (const FlatEntry& entry : spec_.layout.entries) {
      LeafState& state = spec_.leaf(entry, part);
      state.grad = Tensor();
      state.has_value = false;
    }
  }
}

void UnshardedGradient::free() {
  for_each_flag([](bool& has_value) { has_value = false; });
  if (!spec_.shards_gradients()) return;
  unbind();
  whole_ = Tensor();
}

// ---- Sums ----

GradientAccumulator::GradientAccumulator(const BufferSpec& spec, OptimShard& shard,
                                         UnshardedGradient& unsharded)
    : spec_(spec), shard_(shard), unsharded_(unsharded) {
  if (!spec_.shards_gradients()) {
    const Tensor& whole = unsharded_.whole();
    shard_.grad = spec_.is_sharded() ? spec_.own_part(whole) : whole;
  } else {
    const UnitOffload& offload = spec_.traits.offload;
    Context& memory = offload.gradients ? offload.tier->context() : spec_.shared.context();
    const int64_t count = spec_.layout.count_of(spec_.ranks().rank());
    shard_.grad = spec_.zeroed(memory, count, spec_.traits.reduce, MemoryTag::kGradient);
    if (offload.gradients) {
      host_ = std::make_unique<HostGradient>(*offload.tier, shard_.grad, spec_.name);
      shard_.gradient->in_memory = [this](const std::function<void()>& use) {
        host_->with_sum(use);
      };
    }
  }
  shard_.gradient->parameters = spec_.layout.entries.size();
  if (spec_.is_sharded()) shard_.gradient->has_value = false;
}

bool GradientAccumulator::has_gradient() const {
  return spec_.is_sharded() ? has_sum() : unsharded_.has_any_value();
}

void GradientAccumulator::clear() {
  unsharded_.for_each_flag([](bool& has_value) { has_value = false; });
  if (spec_.is_sharded()) shard_.gradient->has_value = false;
}

void GradientAccumulator::for_each_flag(const std::function<void(bool&)>& visit) {
  if (shard_.gradient->has_value.has_value()) visit(*shard_.gradient->has_value);
  visit(is_sum_);
  unsharded_.for_each_flag(visit);
}

void GradientAccumulator::set_has_sum() {
  is_sum_ = true;
  if (!spec_.is_sharded()) return;
  shard_.gradient->has_value = true;
  shard_.gradient->zeroed.clear();
}

// ---- Several backwards in a step ----

bool GradientAccumulator::must_keep() {
  if (spec_.shards_gradients()) return false;
  if (spec_.is_sharded()) return has_sum() && !kept_.defined();
  if (!has_gradient()) is_sum_ = false;  // zero_grad() was called since the sum was made
  return is_sum_;
}

void GradientAccumulator::keep() {
  if (!spec_.is_sharded()) unsharded_.fill_missing();  // zeroes parts cleared by zero_grad()
  fill_zeroed();
  const Tensor& sum = shard_.grad;
  kept_ = empty(spec_.shared.context(), sum.shape(), sum.dtype(), MemoryTag::kGradient,
                "sum of gradients");
  kernels::axpby(sum.exec(), {.a = sum, .y = kept_});
  is_sum_ = false;
  unsharded_.set_to_zero();
}

// Clears parts of the kept sum for which zero_grad() was called: parameters without a value.
void GradientAccumulator::drop_zeroed() {
  if (!kept_.defined()) return;
  if (spec_.is_sharded()) {
    if (!has_sum()) kept_ = Tensor();
    for (const OptimSpan& span : shard_.spans) {
      if (shard_.gradient->zeroed.erase(span.parameter) == 0 || span.count == 0) continue;
      set_to_zero(vector_slice(kept_, span.offset, span.count));
    }
    return;
  }
  for (const FlatEntry& entry : spec_.layout.entries) {
    if (!unsharded_.has_value(entry)) set_to_zero(entry.part_of(kept_));
  }
  if (!unsharded_.has_any_value()) kept_ = Tensor();
}

// Zeroes the shard's gradients of the parameters in ShardGradient::zeroed, and clears that set.
void GradientAccumulator::fill_zeroed() {
  std::set<const Parameter*>& zeroed = shard_.gradient->zeroed;
  if (zeroed.empty()) return;
  shard_.with_gradient([&] {
    for (const OptimSpan& span : shard_.spans) {
      if (!zeroed.contains(span.parameter) || span.count == 0) continue;
      set_to_zero(vector_slice(shard_.grad, span.offset, span.count));
    }
  });
  zeroed.clear();
}

// ---- After a reduction ----

// True if the sum over ranks is written directly to its final place.
bool GradientAccumulator::reduces_in_place() const {
  if (spec_.shared.options.reproducible || spec_.traits.offload.gradients) return false;
  return !spec_.shards_gradients() || (!has_sum() && !spec_.layout.owner);
}

Tensor GradientAccumulator::destination() const {
  if (spec_.sums_everywhere()) return unsharded_.whole();
  return spec_.shards_gradients() && reduces_in_place() ? shard_.grad
                                                        : spec_.own_part(unsharded_.whole());
}

void GradientAccumulator::add(const Tensor& sum) {
  if (spec_.shared.options.reproducible) {
    counter_.add(sum);
  } else {
    add_sum(sum);
  }
  if (!spec_.sums_everywhere()) unsharded_.free();
  // In a reproducible run more backwards follow, and add to the unsharded gradient.
  if (kept_.defined() && !spec_.is_sharded()) unsharded_.set_to_zero();
}

// Adds `sum` to the sum of the step's earlier backwards, the left operand in every stage.
void GradientAccumulator::add_sum(const Tensor& sum) {
  if (host_ != nullptr) {
    fill_zeroed();
    host_->add(sum, /*first=*/!has_sum());
  } else if (kept_.defined()) {
    kernels::axpby(sum.exec(), {.a = kept_, .b = sum, .y = sum});
    kept_ = Tensor();
  } else if (!reduces_in_place()) {
    fill_zeroed();
    kernels::axpby(sum.exec(), {.a = has_sum() ? shard_.grad.view() : sum.view(),
                                .b = has_sum() ? sum.view() : View{},
                                .y = shard_.grad});
  }
  set_has_sum();
}

std::optional<Event> GradientAccumulator::completion() const {
  if (spec_.shared.options.reproducible) return {};
  if (host_ == nullptr) return Event();
  return host_->settles_itself() ? std::optional(host_->arrived()) : std::nullopt;
}

void GradientAccumulator::finish_step() {
  if (spec_.shared.options.reproducible) {
    const Tensor sum = counter_.take(spec_.name);
    if (host_ != nullptr) {
      add_sum(sum);
    } else {
      take_reproducible_sum(sum);
    }
  }
  if (host_ != nullptr) host_->settle();
}

void GradientAccumulator::take_reproducible_sum(const Tensor& sum) {
  const Tensor& whole = unsharded_.whole();
  const Tensor part = spec_.is_sharded() ? shard_.grad : spec_.own_part(whole);
  Tensor before;  // sum of earlier backwards
  if (kept_.defined()) {
    before = spec_.is_sharded() ? kept_ : spec_.own_part(kept_);
  } else if (spec_.shards_gradients() && has_sum()) {
    fill_zeroed();
    before = part;
  }
  kernels::axpby(part.exec(), {.a = before.defined() ? before : sum,
                               .b = before.defined() ? sum.view() : View{},
                               .y = part});
  kept_ = Tensor();
  set_has_sum();
  if (spec_.is_sharded()) return;
  ShardingContext& shared = spec_.shared;
  ProcessGroup& group = spec_.ranks();
  const CollectiveOptions options = shared.collective(spec_.name, Traffic::kGradients);
  shared.wait(spec_.layout.owner ? group.broadcast(whole, *spec_.layout.owner, options)
                                 : group.all_gather(part, whole, options));
  unsharded_.for_each_flag([](bool& has_value) { has_value = true; });
}

}  // namespace shale::comm
