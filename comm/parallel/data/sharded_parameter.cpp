#include "shale/comm/parallel/data/sharded_parameter.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/hosted_models.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

// Index of the model that has `parameter`, among those of the mesh ranks in this process.
size_t model_of(const HostedModels& hosted, const Parameter& parameter) {
  const auto& models = hosted.models();
  const auto found = std::find(models.begin(), models.end(), &root_of(*parameter.owner));
  if (found != models.end()) return static_cast<size_t>(found - models.begin());
  throw InternalError(cat("sharded parameter: ", parameter.full_name(),
                          " does not belong to a model of this process"));
}

bool is_on_this_stage(const PipelineStages* stages, const Parameter& first) {
  if (stages == nullptr) return true;
  const auto holders = stages->holders.find(&first);
  return holders == stages->holders.end() ||
         std::ranges::count(holders->second, stages->group->rank()) > 0;
}

// Returns a placement, without its kind, for each axis of several mesh ranks, slowest axis first.
std::vector<Placement> axes_of(const ShardGroups& groups, const Sharding& sharding) {
  const int context_here = groups.hosted != nullptr ? groups.hosted->context() : 1;
  std::vector<Placement> axes = {
      {.axis = "replica", .ranks = groups.replicate != nullptr ? groups.replicate->size() : 1},
      {.axis = "pipeline", .ranks = groups.stages != nullptr ? groups.stages->group->size() : 1}};
  if (sharding.is_of_experts) {
    axes.push_back({.axis = "shard", .ranks = groups.expert_shard->size()});
    axes.push_back({.axis = "expert", .ranks = groups.experts->size()});
  } else {
    axes.push_back(
        {.axis = "shard", .ranks = groups.shard->size() * context_here / groups.context});
    axes.push_back({.axis = "context", .ranks = groups.context});
    axes.push_back({.axis = "tensor", .ranks = sharding.ranks});
  }
  std::erase_if(axes, [](const Placement& axis) { return axis.ranks == 1; });
  return axes;
}

}  // namespace

std::string to_string(const Placement& placement) {
  const auto [axis, ranks, kind, dim, groups] = placement;
  const std::string of_axis = cat(axis, " ", ranks, ": ");
  switch (kind) {
    case Placement::Kind::kReplicate: return of_axis + "replicate";
    case Placement::Kind::kRange: return of_axis + "range";
    case Placement::Kind::kPartial: return of_axis + "partial";
    case Placement::Kind::kSome: return of_axis + "some";
    case Placement::Kind::kShard: break;
  }
  return cat(of_axis, "shard(", dim, groups > 1 ? cat(" in ", groups, " groups") : "", ")");
}

ShardedParameter::ShardedParameter(DataParallel& parallel, const Parameter& parameter)
    : parallel_(&parallel), parameter_(&parameter), first_(&parameter) {
  const ShardGroups& groups = parallel.shared().groups;
  const Parameter* stored = &parameter;  // copy with the memory that all context ranks share
  bool is_here = true;
  if (const HostedModels* const hosted = groups.hosted; hosted != nullptr) {
    const size_t tensor = model_of(*hosted, parameter) % static_cast<size_t>(hosted->tensor());
    first_ = hosted->models().front()->find_parameter(parameter.full_name());
    stored = hosted->models()[tensor]->find_parameter(parameter.full_name());
    is_here = tensor == 0 || parameter.sharding.share != Share::kFirst;
  }
  const bool is_on_stage = is_on_this_stage(groups.stages, *first_);
  if (is_here && is_on_stage) place_ = parallel.place_of(*stored);
  is_sharded_ = is_on_stage ? parallel.place_of(*first_).buffer->is_sharded()
                            : first_->trainable && parallel.options().stage >= 1;
}

std::vector<Placement> ShardedParameter::placements(bool of_gradient) const {
  using enum Placement::Kind;
  const ShardGroups& groups = parallel_->shared().groups;
  const Sharding& sharding = parameter_->sharding;
  const int context_here = groups.hosted != nullptr ? groups.hosted->context() : 1;
  std::vector<Placement> all = axes_of(groups, sharding);
  for (Placement& one : all) {
    if (one.axis == "pipeline") {
      one.kind = kSome;
    } else if (one.axis == "expert" || (one.axis == "tensor" && sharding.share == Share::kShard)) {
      one = {one.axis, one.ranks, kShard, sharding.dim, sharding.groups};
    } else if (one.axis == "tensor" && sharding.share == Share::kFirst) {
      one.kind = kSome;
    } else if (of_gradient) {
      one.kind = kPartial;
    } else if (one.axis == "shard" || (one.axis == "context" && one.ranks > context_here)) {
      one.kind = is_sharded_ ? kRange : kReplicate;
    }
  }
  return all;
}

OptimSpan ShardedParameter::span() const {
  if (!place_) return {};
  return place_->buffer->spec().span_of(*place_->entry, place_->buffer->ranks().rank());
}

ElementRange ShardedParameter::local_range() const {
  const OptimSpan part = span();
  return {.begin = part.first, .count = part.count};
}

Tensor ShardedParameter::local() const {
  if (!place_) return {};
  place_->buffer->values().wait_for_step();
  const OptimSpan part = span();
  return vector_slice(place_->buffer->master(), part.offset, part.count);
}

Tensor ShardedParameter::local_grad() const {
  if (!place_) return {};
  const OptimShard& shard = place_->buffer->shard();
  const Parameter* const stored = place_->entry->parameter;
  const LeafState* leaf = stored->value.impl().leaf.get();
  const bool has_grad = shard.gradient->has_value.value_or(leaf != nullptr && leaf->has_value) &&
                        !shard.gradient->zeroed.contains(stored);
  if (!has_grad || !shard.grad.defined()) return {};
  const OptimSpan part = span();
  return vector_slice(shard.grad, part.offset, part.count);
}

Tensor ShardedParameter::full() const {
  return parallel_->full_tensor(*first_);
}

void ShardedParameter::distribute(const View& whole) const {
  const auto fail = [this](const auto& found, const auto& want) {
    return cat("distribute: ", name(), ": the values are ", found, ", expected ", want);
  };
  if (whole.dtype != DType::kF32) {
    throw DTypeError(fail(dtype_name(whole.dtype), dtype_name(DType::kF32)));
  }
  if (!(whole.shape == shape())) throw ShapeError(fail(whole.shape, shape()));
  if (!whole.contiguous()) throw ShapeError(fail("strided", "contiguous ones"));
  std::vector<ShardedParameter> here;  // this parameter on each mesh rank in the process
  for (const Parameter* peer : first_->peers) here.emplace_back(*parallel_, *peer);
  if (here.empty()) here.emplace_back(*parallel_, *first_);
  for (const ShardedParameter& one : here) one.copy_from(whole.as<float>());
  for (const ShardedParameter& one : here) one.local_changed();
}

void ShardedParameter::copy_from(const float* whole) const {
  const OptimSpan part = span();
  if (part.count == 0) return;
  std::vector<float> own(static_cast<size_t>(part.count));
  for_each_rows(shape(), parameter_->sharding, part.first, part.count, [&](const PartRows& rows) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      std::copy_n(whole + rows.in_whole + row * rows.stride, rows.run,
                  own.data() + rows.in_part - part.first + row * rows.run);
    }
  });
  const Tensor to = local();
  kernels::axpby(to.exec(), {.a = from_host<float>(to.context(), own, {part.count}), .y = to});
}

void ShardedParameter::local_changed() const {
  if (!place_) return;
  place_->buffer->master().context().synchronize();
  place_->buffer->values().masters_changed();
}

std::vector<ShardedParameter> sharded_parameters(const Module& model) {
  DataParallel& parallel = data_parallel_of(model);
  std::vector<ShardedParameter> all;
  for (const Parameter* parameter : model.parameters()) all.emplace_back(parallel, *parameter);
  return all;
}

}  // namespace shale::comm
