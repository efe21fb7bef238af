#include "shale/runtime/optim/shard.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/name_pattern.h"
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
    const bool is_held = leaf.grad.defined() && leaf.grad.storage().use_count() > 1;
    if (is_held || leaf.allocate_grad != nullptr || !leaf.ready_hooks.empty()) {
      throw InternalError(
          cat("local_shards: the gradient of ", shard.name,
              " is in use already, by earlier shards, fully_shard() or "
              "DataParallel; call local_shards() once, and divide its shards among optimizers with "
              "select_parameters(shards, ...); for a sharded model use optim_shards(model)"));
    }
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

namespace {

void fill_zero(const OptimShard& shard, const OptimSpan& span) {
  if (span.count == 0) return;
  const Tensor grad = vector_slice(shard.grad, span.offset, span.count);
  shard.with_gradient([&] { kernels::fill(grad.exec(), {.y = grad, .value = 0}); });
}

std::string first_name(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    for (const OptimSpan& span : shard.spans) return span.parameter->full_name();
  }
  return "none";
}

// Marks the gradients of a shard as zero, for a shard with only some spans of its buffer (see
// OptimShard).
void zero_part(const OptimShard& shard) {
  ShardGradient& gradient = *shard.gradient;
  for (const OptimSpan& span : shard.spans) {
    gradient.clipped_apart[span.parameter] = {};
    if (gradient.has_value.value_or(false)) gradient.zeroed.insert(span.parameter);
  }
  if (gradient.zeroed.size() == gradient.parameters) {
    gradient.has_value = false;
    gradient.zeroed.clear();
  }
  const bool none_clipped =
      gradient.clipped_apart.size() == gradient.parameters &&
      std::none_of(gradient.clipped_apart.begin(), gradient.clipped_apart.end(),
                   [](const auto& part) { return part.second.defined(); });
  if (!none_clipped) return;
  gradient.clipped = {};
  gradient.clipped_apart.clear();
}

}  // namespace

std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          const std::function<bool(const Parameter&)>& wanted) {
  std::vector<OptimShard> selected;
  for (OptimShard shard : shards) {
    std::erase_if(shard.spans, [&](const OptimSpan& span) { return !wanted(*span.parameter); });
    if (!shard.spans.empty()) selected.push_back(std::move(shard));
  }
  if (selected.empty()) {
    throw ConfigError(
        cat("optimizer: no parameter is selected; the first parameter is ", first_name(shards)));
  }
  return selected;
}

std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          std::string_view pattern) {
  return select_parameters(shards, [&](const Parameter& parameter) {
    return name_fits(pattern, parameter.full_name());
  });
}

void set_parameter_options(std::vector<OptimShard>& shards, std::string_view pattern,
                           const ParameterOptions& options) {
  bool found = false;
  for (OptimShard& shard : shards) {
    for (OptimSpan& span : shard.spans) {
      if (!name_fits(pattern, span.parameter->full_name())) continue;
      span.options = options;
      found = true;
    }
  }
  if (found) return;
  throw ConfigError(cat("optimizer: no parameter name matches \"", pattern,
                        "\"; the first parameter is ", first_name(shards)));
}

const ShardPeers* peers_of(std::string_view what, const std::vector<OptimShard>& shards) {
  const ShardPeers* peers = shards.empty() ? nullptr : shards.front().peers.get();
  for (const OptimShard& shard : shards) {
    const bool same = (peers == nullptr) == (shard.peers == nullptr) &&
                      (peers == nullptr || peers->ranks == shard.peers->ranks);
    if (same) continue;
    throw ConfigError(cat(what, ": ", shard.name, " is sharded over other ranks than ",
                          shards.front().name, ", expected the shards of one model"));
  }
  return peers;
}

const ShardPeers* all_peers_of(std::string_view what, const std::vector<OptimShard>& shards) {
  const ShardPeers* const peers = peers_of(what, shards);
  return !shards.empty() && shards.front().all_peers != nullptr ? shards.front().all_peers.get()
                                                                : peers;
}

bool lacks_parts(const OptimSpan& span, const ShardPeers* peers) {
  const Parameter& parameter = *span.parameter;
  const Sharding& sharding = parameter.sharding;
  if (peers != nullptr) return sharding.is_of_experts && !peers->have_all_experts;
  const bool is_apart = sharding.share == Share::kShard && !parameter.peers.empty() &&
                        std::ssize(parameter.peers) < sharding.ranks;
  return is_apart || span.count != parameter.numel();
}

void complete_gradients(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    ShardGradient& gradient = *shard.gradient;
    if (gradient.check != nullptr) gradient.check();
    if (gradient.has_value.has_value()) {
      if (!*gradient.has_value) {
        shard.with_gradient(
            [&] { kernels::fill(shard.grad.exec(), {.y = shard.grad, .value = 0}); });
      }
      gradient.has_value = true;
      for (const OptimSpan& span : shard.spans) {
        if (gradient.zeroed.erase(span.parameter) > 0) fill_zero(shard, span);
      }
      continue;
    }
    for (const OptimSpan& span : shard.spans) {
      if (!leaf_state(span.parameter->value).has_value) fill_zero(shard, span);
    }
  }
  for (const OptimShard& shard : shards) {
    if (shard.gradient->has_value.has_value()) continue;
    for (const OptimSpan& span : shard.spans) leaf_state(span.parameter->value).has_value = true;
  }
}

void zero_grad(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    for (const OptimSpan& span : shard.spans) leaf_state(span.parameter->value).has_value = false;
    if (!shard.is_whole()) {
      zero_part(shard);
      continue;
    }
    ShardGradient& gradient = *shard.gradient;
    if (gradient.has_value.has_value()) gradient.has_value = false;
    gradient.zeroed.clear();
    gradient.clipped = {};
    gradient.clipped_apart.clear();
  }
}

}  // namespace shale
