#include "comm/flat_unit.h"

#include "kernels/elementwise.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

std::string unit_name(const Module& module) {
  const std::string name = module.full_name();
  return name.empty() ? "root" : name;
}

}  // namespace

FlatUnit::FlatUnit(const UnitPlan& plan, Context& context, int ranks, DType compute, uint64_t seed)
    : name_(unit_name(*plan.module)), layout_(flat_layout(plan.parameters, ranks)) {
  const Shape shape = {layout_.numel};
  const bool has_master = compute != DType::kF32;
  const auto zeroed = [&](DType dtype, MemoryTag tag) {
    Tensor buffer = shale::empty(context, shape, dtype, tag, name_);
    kernels::fill(context.exec(), {.y = buffer, .value = 0});
    return buffer;
  };
  // Padding is zero in every buffer and stays so: its gradient is zero.
  master_ = zeroed(DType::kF32, has_master ? MemoryTag::kOptimizer : MemoryTag::kParameter);
  if (has_master) compute_ = zeroed(compute, MemoryTag::kParameter);
  grad_ = zeroed(DType::kF32, MemoryTag::kGradient);
  const Tensor& values = has_master ? compute_ : master_;
  for (const FlatEntry& entry : layout_.entries) {
    Parameter& parameter = *entry.parameter;
    if (!leaf_state(parameter.value).ready_hooks.empty()) {
      throw InternalError(cat("unit: ", parameter.full_name(), " is in data parallelism already"));
    }
    const Tensor master = vector_slice(master_, entry.offset, parameter.numel());
    parameter.bind(context, values.storage(), entry.offset, compute);
    parameter.write_initial(context.exec(), seed, 0, master);
    publish(parameter, master);
    masters_.emplace_back(&parameter, master);
    LeafState& leaf = leaf_state(parameter.value);
    leaf.grad = grad_.alias(parameter.shape, contiguous_strides(parameter.shape), entry.offset);
    leaf.has_value = false;
  }
  for (Parameter* parameter : plan.frozen) bind_frozen(*parameter, context, compute, seed);
}

FlatUnit::~FlatUnit() {
  for (const FlatEntry& entry : layout_.entries)
    leaf_state(entry.parameter->value).ready_hooks.clear();
}

void FlatUnit::bind_frozen(Parameter& parameter, Context& context, DType compute, uint64_t seed) {
  const Tensor master = shale::empty(context, {parameter.numel()}, DType::kF32,
                                     MemoryTag::kParameter, parameter.full_name());
  Tensor value = master;
  if (compute != DType::kF32) {
    value = shale::empty(context, {parameter.numel()}, compute, MemoryTag::kParameter,
                         parameter.full_name());
  }
  parameter.bind(context, value.storage(), 0, compute);
  parameter.write_initial(context.exec(), seed, 0, master);
  publish(parameter, master);
  masters_.emplace_back(&parameter, master);
}

void FlatUnit::publish(const Parameter& parameter, const Tensor& master) const {
  parameter.value.bump_version();
  if (parameter.value.dtype() == DType::kF32) return;
  const Tensor value = parameter.value.alias({parameter.numel()}, {1});
  kernels::axpby(master.exec(), {.a = master, .y = value});
}

OptimShard FlatUnit::shard() const {
  OptimShard shard{
      .name = name_, .master = master_, .grad = grad_, .compute = compute_, .spans = {}};
  for (const FlatEntry& entry : layout_.entries) {
    shard.spans.push_back({.parameter = entry.parameter,
                           .first = 0,
                           .offset = entry.offset,
                           .count = entry.parameter->numel()});
  }
  return shard;
}

void FlatUnit::set_ready_hook(std::function<void()> ready) {
  for (const FlatEntry& entry : layout_.entries) {
    leaf_state(entry.parameter->value).ready_hooks.push_back([this, ready] {
      if (--pending_ == 0) ready();
    });
  }
}

void FlatUnit::complete() {
  complete_gradients({shard()});
  pending_ = 0;
}

}  // namespace shale::comm
