#include "shale/comm/parallel/data/data_parallel_checks.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/rng.h"
#include "shale/comm/parallel/hosted_models.h"
#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/comm/same_on_all.h"

namespace shale::comm {
namespace {

// Refuses a group for host memory if the model is on a device. Such a group would use device
// addresses as host addresses.
void check_memory(const Context& context, ProcessGroup& group) {
  const bool on_device = context.device().type != DeviceType::kCpu;
  const bool for_device = &group.host() != &group;
  if (on_device == for_device) return;
  throw ConfigError(cat("data parallel: group ", group.options().name, " (", group.backend(),
                        ") is for ", for_device ? "device" : "host",
                        " memory, but the model is on ", context.device(),
                        "; pass World::group({}, context.backend()), or a part of that group"));
}

// Throws ConfigError, naming `what`, unless `holds`.
template <class... What>
void want(bool holds, const What&... what) {
  if (!holds) throw ConfigError(cat("data parallel: ", what...));
}

// Refuses a placement of ranks on hosts that gives sums other bits than one host. Collective.
void check_order_of_hosts(ProcessGroup& group) {
  const std::vector<std::string> hosts = group.host().all_gather_bytes(host_identity(), "hosts");
  want(adds_in_rank_order(hosts),
       "reproducible needs the same number of ranks on each host, a power of two, and consecutive "
       "ranks on a host; give each host this number of slots and let mpirun fill one host after "
       "another (--map-by slot)");
}

}  // namespace

bool adds_in_rank_order(std::span<const std::string> hosts) {
  const std::set<std::string_view> different(hosts.begin(), hosts.end());
  const size_t each = hosts.size() / different.size();
  if (each * different.size() != hosts.size() || !std::has_single_bit(each)) return false;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != hosts[rank / each * each]) return false;
  }
  return true;
}

void check_options(const ShardingContext& shared, const DataParallelOptions& options) {
  const ShardGroups& groups = shared.groups;
  for (ProcessGroup* group : {groups.shard, groups.replicate, groups.reshard}) {
    if (group != nullptr) check_memory(shared.context(), *group);
  }
  const int stage = options.stage;
  const bool reproducible = options.reproducible;
  const int replicas = groups.replicate != nullptr ? groups.replicate->size() : 1;
  const auto ranks = static_cast<uint64_t>(groups.shard->size() * replicas);
  want(stage >= 0 && stage <= 3, "stage is ", stage, ", expected 0 to 3");
  want(stage <= 1 || groups.stages == nullptr, "stage is ", stage,
       " in a pipeline, where every micro-batch would reduce gradients or gather parameters; "
       "expected 0 or 1");
  want(options.prefetch >= 0, "prefetch is ", options.prefetch, ", expected 0 or more");
  want(options.offload_share > 0 && options.offload_share <= 1, "offload_share is ",
       options.offload_share, ", expected more than 0, at most 1");
  want(!reproducible || std::has_single_bit(ranks),
       "reproducible needs a number of ranks that is a power of two, found ", ranks, " ranks");
  want(!reproducible || ranks == 1 || groups.shard->backend() != "nccl",
       "reproducible is incompatible with NCCL, whose order of additions depends on the number of "
       "ranks; use Transport::kMpi (--comm mpi)");
  if (reproducible && ranks > 1) {
    check_order_of_hosts(*groups.shard);
    if (groups.replicate != nullptr) check_order_of_hosts(*groups.replicate);
  }
  want((!options.gather_code && !options.reduce_code) || (stage >= 2 && !reproducible),
       "gather_code and reduce_code need stage 2 or 3 without reproducible, found stage ", stage,
       reproducible ? " with reproducible" : "");
  want(!options.gather_fp8 || (stage >= 3 && !options.gather_code),
       "gather_fp8 needs stage 3 without gather_code, found stage ", stage,
       options.gather_code ? " with gather_code" : "");
  want(!options.reduce_code || groups.replicate == nullptr,
       "reduce_code is incompatible with hybrid sharding; use one group of all ranks");
  want(groups.replicate == nullptr || stage != 0,
       "hybrid sharding needs stage 1, 2 or 3, found 0; or use one group of all ranks");
}

void check_unit_options(const ShardingContext& shared, const UnitOptions& options) {
  const auto& [tier, gradients, parameters] = options.offload;
  const bool reproducible = shared.options.reproducible;
  if (tier != nullptr && &tier->device() != &shared.context()) {
    throw InternalError("data parallel: the host tier belongs to another device");
  }
  const auto check_offload = [&](bool wanted, const char* what, int stage) {
    want(!wanted || (tier != nullptr && shared.options.stage >= stage), what,
         " can be offloaded only with a host tier and a stage of at least ", stage,
         ", found stage ", shared.options.stage, tier == nullptr ? " without a host tier" : "");
  };
  check_offload(gradients, "gradients", 2);
  check_offload(parameters, "parameters", 3);
  want(options.reduce == DType::kF32 || options.reduce == DType::kBF16, "gradients are ",
       dtype_name(options.reduce), ", expected fp32 or bf16");
  want(!reproducible || options.reduce == DType::kF32, "reproducible needs fp32 gradients, found ",
       dtype_name(options.reduce));
  if (options.reshard_after_forward != ReshardAfterForward::kSmallGroup) return;
  const ProcessGroup& shard = *shared.groups.shard;
  const ProcessGroup* const small = shared.groups.reshard;
  want(small != nullptr && shard.size() % small->size() == 0 &&
           shard.rank() % small->size() == small->rank(),
       "ReshardAfterForward::kSmallGroup needs a group of consecutive ranks whose size divides ",
       shard.size(), ", the size of the shard group; found ",
       small == nullptr ? "none" : cat("a group of ", small->size(), " ranks"));
}

// The tensor ranks that share layers must be those of ShardGroups::tensor, which adds gradients.
void check_exchange(const ShardGroups& groups, const std::vector<UnitPlan>& plans) {
  const ProcessGroup* const group = groups.tensor;
  const int hosted = groups.hosted != nullptr ? groups.hosted->tensor() : 1;
  for (const UnitPlan& plan : plans) {
    const auto is_shared = [](const Parameter* parameter) {
      return parameter->sharding.share != Share::kWhole && !parameter->sharding.is_of_experts;
    };
    const auto shared = std::find_if(plan.parameters.begin(), plan.parameters.end(), is_shared);
    const int ranks = shared != plan.parameters.end() ? (*shared)->sharding.ranks / hosted : 1;
    if (ranks == (group != nullptr ? group->size() : 1)) continue;
    throw ConfigError(
        cat("data parallel: ", ranks, " tensor-parallel ranks share the layers of ",
            unit_name(*plan.module), ", but ShardGroups::tensor ",
            group != nullptr ? cat("has ", group->size(), " ranks") : std::string("is not set"),
            "; pass Parallel::groups() in place of one group"));
  }
}

// Refuses different models, because ranks would add gradients of different parameters.
void compare_ranks(const ShardGroups& groups, const DataParallelOptions& options,
                   const std::vector<UnitPlan>& plans, const UnitOptions& unit) {
  std::string text;
  int64_t count = 0;
  for (const UnitPlan& plan : plans) {
    text += cat("|", unit_name(*plan.module));
    for (const Parameter* parameter : plan.parameters) {
      count += parameter->numel();
      text += cat(" ", parameter->full_name(), parameter->shape, parameter->trainable,
                  parameter->decay, " ", parameter->init.mean, " ", parameter->init.std);
    }
  }
  const auto number = [](std::optional<kernels::BlockCode> code) {
    return code ? static_cast<int>(*code) : -1;
  };
  const std::string description = cat(
      count, " parameters (names, shapes and initial values: ", hash_name(text), "), ",
      dtype_name(unit.compute), ", gradients ", dtype_name(unit.reduce), ", stage ", options.stage,
      ", seed ", *options.seed, ", reproducible ", options.reproducible, ", persist below ",
      unit.persist_below, ", reshard ", static_cast<int>(unit.reshard_after_forward), ", prefetch ",
      options.prefetch, ", codes ", number(options.gather_code), " ", number(options.reduce_code),
      ", gathers of fp8 ", options.gather_fp8);
  const std::string what =
      plans.size() == 1 ? cat("unit ", unit_name(*plans.front().module)) : std::string("model");
  require_same_on_all(*groups.shard, what, description);
  if (groups.replicate != nullptr) require_same_on_all(*groups.replicate, what, description);
}

}  // namespace shale::comm
