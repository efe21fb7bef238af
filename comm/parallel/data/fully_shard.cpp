#include "shale/comm/parallel/data/fully_shard.h"

#include "shale/base/error.h"

namespace shale::comm {
namespace {

struct Sharded : Module::Attachment {
  Sharded(Context& context, const ShardGroups& groups, const DataParallelOptions& options)
      : parallel(context, groups, options) {}
  ~Sharded() override { parallel.release(); }
  DataParallel parallel;
};

Sharded* find(const Module& root) {
  return dynamic_cast<Sharded*>(root.attachment());
}

void check_same(const DataParallel& parallel, const Module& module, const Context& context,
                const ShardGroups& groups, const DataParallelOptions& options) {
  const ShardingContext& shared = parallel.shared();
  const ShardGroups& before = shared.groups;
  if (&shared.context() == &context && before.shard == groups.shard &&
      before.replicate == groups.replicate && before.reshard == groups.reshard &&
      shared.options == options.sharding() && parallel.options().prefetch == options.prefetch) {
    return;
  }
  throw ConfigError(
      cat("fully_shard: ", unit_name(module),
          " has another context, group, stage, overlap, reproducible, prefetch or "
          "seed than the units before it, expected the same in all units of a model"));
}

}  // namespace

FlatUnit& fully_shard(Module& module, Context& context, const ShardGroups& groups,
                      const DataParallelOptions& given) {
  auto& root = const_cast<Module&>(root_of(module));
  const Sharded* const before = find(root);
  DataParallelOptions options = given;
  if (!options.seed && before != nullptr) options.seed = before->parallel.options().seed;
  if (before == nullptr) {
    if (root.attachment() != nullptr) {
      throw InternalError(
          cat("fully_shard: another object is already attached to ", root.full_name()));
    }
    if (!options.seed) options.seed = context.next_model_seed();
    root.attach(std::make_unique<Sharded>(context, groups, options));
  }
  if (options.offload_share != 1) {
    throw ConfigError(cat("fully_shard: offload_share is ", options.offload_share,
                          ", which only DataParallel supports, as it makes all units together; use "
                          "1, and set `offload` in the units to be offloaded"));
  }
  DataParallel& parallel = find(root)->parallel;
  check_same(parallel, module, context, groups, options);
  return parallel.add_unit(module, options.unit());
}

FlatUnit& fully_shard(Module& module, Context& context, ProcessGroup& group,
                      const DataParallelOptions& options) {
  return fully_shard(module, context, ShardGroups{.shard = &group}, options);
}

DataParallel& data_parallel_of(const Module& module) {
  Sharded* sharded = find(root_of(module));
  if (sharded == nullptr) {
    throw InternalError(
        cat("the model of ", module.full_name(), " is not sharded; call fully_shard() first"));
  }
  return sharded->parallel;
}

std::vector<OptimShard> optim_shards(const Module& model) {
  return data_parallel_of(model).shards();
}

Tensor mean_over_ranks(const Module& model, const Tensor& loss, double weight) {
  return data_parallel_of(model).mean_over_ranks(loss, weight);
}

void clip_grad_norm(const Module& model, float max_norm) {
  data_parallel_of(model).clip_grad_norm(max_norm);
}

}  // namespace shale::comm
