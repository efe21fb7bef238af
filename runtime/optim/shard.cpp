#include "shale/runtime/optim/shard.h"

#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {

Tensor vector_slice(const Tensor& vector, int64_t begin, int64_t count) {
  return vector.alias({count}, {1}, begin);
}

std::vector<OptimShard> local_shards(Module& module, Context& context) {
  std::vector<OptimShard> shards;
  for (Parameter* parameter : module.parameters()) {
    if (!parameter->trainable) continue;
    const int64_t count = parameter->numel();
    OptimShard shard;
    shard.name = parameter->full_name();
    const amp::Precision* precision = parameter->owner->precision();
    const DType reduce = precision != nullptr ? precision->reduce : DType::kF32;
    shard.grad = empty(context, {count}, reduce, MemoryTag::kGradient, shard.name);
    LeafState& leaf = leaf_state(parameter->value);
    leaf.grad = shard.grad.alias(parameter->shape, contiguous_strides(parameter->shape));
    leaf.has_value = false;
    const Tensor value = parameter->value.alias({count}, {1});
    if (value.dtype() == DType::kF32) {
      shard.master = value;
    } else {
      shard.master = empty(context, {count}, DType::kF32, MemoryTag::kOptimizer, shard.name);
      shard.compute = value;
      kernels::axpby(context.exec(), {.a = value, .y = shard.master});
    }
    shard.spans = {{.parameter = parameter, .first = 0, .offset = 0, .count = count}};
    shards.push_back(std::move(shard));
  }
  return shards;
}

void complete_gradients(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    if (shard.has_grad != nullptr) {
      if (!*shard.has_grad) kernels::fill(shard.grad.exec(), {.y = shard.grad, .value = 0});
      *shard.has_grad = true;
      continue;
    }
    for (const OptimSpan& span : shard.spans) {
      LeafState& leaf = leaf_state(span.parameter->value);
      if (leaf.has_value) continue;
      const Tensor grad = vector_slice(shard.grad, span.offset, span.count);
      kernels::fill(grad.exec(), {.y = grad, .value = 0});
    }
  }
  for (const OptimShard& shard : shards) {
    if (shard.has_grad != nullptr) continue;
    for (const OptimSpan& span : shard.spans) leaf_state(span.parameter->value).has_value = true;
  }
}

void zero_grad(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    if (shard.has_grad != nullptr) *shard.has_grad = false;
    for (const OptimSpan& span : shard.spans) leaf_state(span.parameter->value).has_value = false;
  }
}

}  // namespace shale
