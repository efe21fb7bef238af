#include "shale/comm/parallel/data/sharded_parameter.h"

#include "shale/base/error.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

MeshLayout mesh_of(const ShardGroups& groups) {
  const int replicas = groups.replicate != nullptr ? groups.replicate->size() : 1;
  const int shards = groups.shard->size();
  return {{{"replica", replicas}, {"shard", shards}}, replicas * shards};
}

}  // namespace

std::string_view to_string(Placement placement) {
  return placement == Placement::kShard ? "shard" : "replicate";
}

ShardedParameter::ShardedParameter(DataParallel& parallel, const Parameter& parameter)
    : parallel_(&parallel),
      parameter_(&parameter),
      place_(parallel.place_of(parameter)),
      mesh_(mesh_of(parallel.shared().groups)),
      placements_{Placement::kReplicate,
                  place_.buffer->is_sharded() ? Placement::kShard : Placement::kReplicate} {}

OptimSpan ShardedParameter::span() const {
  return place_.buffer->span_of(*place_.entry, place_.buffer->ranks().rank());
}

ElementRange ShardedParameter::local_range() const {
  const OptimSpan part = span();
  return {.begin = part.first, .count = part.count};
}

Tensor ShardedParameter::local_tensor() const {
  place_.buffer->wait_for_step();
  const OptimSpan part = span();
  return vector_slice(place_.buffer->master(), part.offset, part.count);
}

Tensor ShardedParameter::local_grad() const {
  const OptimShard& shard = place_.buffer->shard();
  const LeafState* leaf = parameter_->value.impl().leaf.get();
  const bool has_grad = shard.gradient->has_value.value_or(leaf != nullptr && leaf->has_value) &&
                        !shard.gradient->zeroed.contains(parameter_);
  if (!has_grad || !shard.grad.defined()) return {};
  const OptimSpan part = span();
  return vector_slice(shard.grad, part.offset, part.count);
}

Tensor ShardedParameter::full_tensor() const {
  return parallel_->full_tensor(*parameter_);
}

void ShardedParameter::distribute(const View& whole) const {
  const auto fail = [this](const auto& found, const auto& want) {
    return cat("distribute: ", name(), ": the values are ", found, ", want ", want);
  };
  if (whole.dtype != DType::kF32) {
    throw DTypeError(fail(dtype_name(whole.dtype), dtype_name(DType::kF32)));
  }
  if (!(whole.shape == shape())) throw ShapeError(fail(whole.shape, shape()));
  if (!whole.contiguous()) throw ShapeError(fail("strided", "contiguous ones"));
  const OptimSpan part = span();
  const Tensor to = local_tensor();
  if (part.count > 0) {
    const Tensor own = from_host<float>(
        to.context(), {whole.as<float>() + part.first, static_cast<size_t>(part.count)},
        {part.count});
    kernels::axpby(to.exec(), {.a = own, .y = to});
  }
  local_changed();
}

void ShardedParameter::local_changed() const {
  place_.buffer->master().context().synchronize();
  place_.buffer->masters_changed();
}

std::vector<ShardedParameter> sharded_parameters(const Module& model) {
  DataParallel& parallel = data_parallel_of(model);
  std::vector<ShardedParameter> all;
  for (const Parameter* parameter : model.parameters()) all.emplace_back(parallel, *parameter);
  return all;
}

}  // namespace shale::comm
