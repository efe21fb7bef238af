// What DataParallel refuses before it would go wrong, and what it warns of.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/rng.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/hosted_models.h"
#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/comm/same_on_all.h"
#include "shale/runtime/optim/clip.h"

namespace shale::comm {

UnitOptions DataParallelOptions::unit() const {
  return {.compute = compute,
          .reduce = reduce,
          .reshard_after_forward = reshard_after_forward,
          .persist_below = persist_below,
          .offload = offload};
}

ShardingOptions DataParallelOptions::sharding() const {
  return {.stage = stage,
          .overlap = overlap,
          .reproducible = reproducible,
          .gather_code = gather_code,
          .reduce_code = reduce_code,
          .gather_fp8 = gather_fp8,
          .seed = seed.value_or(0)};
}
namespace {

// A host's group takes addresses of a device for its own.
void check_memory(const Context& context, ProcessGroup& group) {
  const bool on_device = context.device().type != DeviceType::kCpu;
  const bool for_device = &group.host() != &group;
  if (on_device == for_device) return;
  throw ConfigError(cat("data parallel: group ", group.options().name, " (", group.backend(),
                        ") is for ", for_device ? "a device's" : "host", " memory, the model's is ",
                        context.device(),
                        "; want World::group({}, context.backend()), or a part of it"));
}

}  // namespace

void DataParallel::validate() const {
  const ShardGroups& groups = shared_.groups;
  for (ProcessGroup* group : {groups.shard, groups.replicate, groups.reshard}) {
    if (group != nullptr) check_memory(shared_.context, *group);
  }
  const int replicas = groups.replicate != nullptr ? groups.replicate->size() : 1;
  const auto ranks = static_cast<uint64_t>(groups.shard->size() * replicas);
  if (options_.stage < 0 || options_.stage > 3) {
    throw ConfigError(cat("data parallel: stage is ", options_.stage, ", want 0 to 3"));
  }
  if (options_.stage > 1 && groups.stages != nullptr) {
    throw ConfigError(cat("data parallel: stage is ", options_.stage,
                          " in a pipeline, whose micro-batches would each be reduced, or gather "
                          "parameters; want 0 or 1"));
  }
  if (options_.prefetch < 0) {
    throw ConfigError(cat("data parallel: prefetch is ", options_.prefetch, ", want 0 or more"));
  }
  if (options_.offload_share <= 0 || options_.offload_share > 1) {
    throw ConfigError(cat("data parallel: the share to offload is ", options_.offload_share,
                          ", want more than 0, at most 1"));
  }
  if (options_.reproducible && !std::has_single_bit(ranks)) {
    throw ConfigError(cat("data parallel: a reproducible run has a power of two of ranks, not ",
                          ranks, ": its sums are binary trees"));
  }
  if (options_.reproducible && ranks > 1 && groups.shard->backend() == "nccl") {
    throw ConfigError(
        "data parallel: a reproducible run does not go with NCCL, whose order of additions depends "
        "on the number of ranks; want Transport::kMpi (--comm mpi)");
  }
  const bool in_codes = options_.gather_code || options_.reduce_code;
  if (in_codes && (options_.stage < 2 || options_.reproducible)) {
    throw ConfigError(
        cat("data parallel: codes travel from stage 2 on, in runs that need not be "
            "reproducible; this one is of stage ",
            options_.stage, options_.reproducible ? ", reproducible" : ""));
  }
  if (options_.gather_fp8 && (options_.stage < 3 || options_.gather_code)) {
    throw ConfigError(
        cat("data parallel: weights are gathered in fp8 in stage 3, and not in other "
            "codes; this is stage ",
            options_.stage, options_.gather_code ? ", with codes" : ""));
  }
  if (options_.reduce_code && groups.replicate != nullptr) {
    throw ConfigError(
        "data parallel: gradients that travel in codes are added over one group, and hybrid "
        "sharding adds them over another; want one group of all ranks");
  }
  if (groups.replicate != nullptr && options_.stage == 0) {
    throw ConfigError(
        "data parallel: hybrid sharding shards inside a group and replicates over groups, and "
        "stage 0 shards nothing; want stage 1 to 3, or one group of all ranks");
  }
}

void DataParallel::validate(const UnitOptions& options) const {
  if (options.offload.tier != nullptr && &options.offload.tier->device() != &shared_.context) {
    throw InternalError("data parallel: the host tier is that of another device");
  }
  const auto check_offload = [&](bool wanted, const char* what, int stage) {
    if (!wanted || (options.offload.tier != nullptr && options_.stage >= stage)) return;
    throw ConfigError(cat("data parallel: ", what,
                          " are offloaded with a host tier and from stage ", stage,
                          " on, not in stage ", options_.stage,
                          options.offload.tier == nullptr ? " without a tier" : ""));
  };
  check_offload(options.offload.gradients, "gradients", 2);
  check_offload(options.offload.parameters, "parameters", 3);
  const ProcessGroup* small = shared_.groups.reshard;
  if (options.reduce != DType::kF32 && options.reduce != DType::kBF16) {
    throw ConfigError(
        cat("data parallel: gradients are ", dtype_name(options.reduce), ", want fp32 or bf16"));
  }
  if (options_.reproducible && options.reduce != DType::kF32) {
    throw ConfigError(cat("data parallel: a reproducible run has fp32 gradients, not ",
                          dtype_name(options.reduce),
                          ": rounding between sums would show the number of ranks"));
  }
  if (options.reshard_after_forward != ReshardAfterForward::kSmallGroup) return;
  if (small == nullptr || shared_.groups.shard->size() % small->size() != 0 ||
      shared_.groups.shard->rank() % small->size() != small->rank()) {
    throw ConfigError(
        cat("data parallel: to reshard to a smaller group takes one whose size "
            "divides that of the shard group, ",
            shared_.groups.shard->size(), ", of consecutive ranks; there is ",
            small == nullptr ? "none" : cat("one of ", small->size())));
  }
}

// Ranks that share layers add up the gradients of what all of them have.
void DataParallel::check_exchange(const std::vector<UnitPlan>& plans) const {
  const ProcessGroup* const group = shared_.groups.tensor;
  const int hosted = shared_.groups.hosted != nullptr ? shared_.groups.hosted->tensor() : 1;
  for (const UnitPlan& plan : plans) {
    const auto is_shared = [](const Parameter* parameter) {
      return parameter->sharding.share != Share::kWhole && !parameter->sharding.is_of_experts;
    };
    const auto shared = std::find_if(plan.parameters.begin(), plan.parameters.end(), is_shared);
    const int ranks = shared != plan.parameters.end() ? (*shared)->sharding.ranks / hosted : 1;
    if (ranks == (group != nullptr ? group->size() : 1)) continue;
    throw ConfigError(
        cat("data parallel: ", ranks, " ranks share the layers of ", unit_name(*plan.module),
            " (tensor_parallel()), and ShardGroups::tensor ",
            group != nullptr ? cat("has ", group->size(), " ranks") : std::string("is not set"),
            "; want the group that tensor_parallel() was given, in ShardGroups{.shard = "
            "..., .tensor = ...}"));
  }
}

// Ranks whose models differ would add up what does not belong together.
void DataParallel::compare_ranks(const std::vector<UnitPlan>& plans,
                                 const UnitOptions& options) const {
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
  const std::string description =
      cat(count, " parameters (names, shapes and initial values: ", hash_name(text), "), ",
          dtype_name(options.compute), ", gradients ", dtype_name(options.reduce), ", stage ",
          options_.stage, ", seed ", *options_.seed, ", reproducible ", options_.reproducible,
          ", persist below ", options.persist_below, ", reshard ",
          static_cast<int>(options.reshard_after_forward), ", prefetch ", options_.prefetch,
          ", codes ", number(options_.gather_code), " ", number(options_.reduce_code),
          ", gathers of fp8 ", options_.gather_fp8);
  const std::string what =
      plans.size() == 1 ? cat("unit ", unit_name(*plans.front().module)) : std::string("model");
  require_same_on_all(*shared_.groups.shard, what, description);
  if (shared_.groups.replicate != nullptr) {
    require_same_on_all(*shared_.groups.replicate, what, description);
  }
}

// Before the last backward of a loss.
void DataParallel::check_micro_batches() const {
  const auto count = static_cast<uint64_t>(chunk().in_tree + 1);
  if (!options_.reproducible || std::has_single_bit(count)) return;
  throw ConfigError(cat("data parallel: ", count,
                        " micro-batches of a rank are added reproducibly, want a power of two"));
}

std::string DataParallel::first_non_finite() {
  std::string found = optim::first_non_finite(shards_);
  for (ProcessGroup* group : {gradient_holders(), shared_.groups.tensor}) {
    if (group == nullptr) continue;
    const auto all = group->all_gather_bytes(found, "gradients that are not finite");
    for (auto name = all.rbegin(); name != all.rend(); ++name) {
      if (!name->empty()) found = *name;
    }
  }
  return found;
}

std::vector<std::string> DataParallel::unused_parameters() const {
  std::vector<std::string> names;
  for (const auto& unit : units_) {
    for (const FlatEntry* entry : unit->unreached()) names.push_back(entry->parameter->full_name());
  }
  return names;
}

void DataParallel::report_unused() {
  if (warned_unused_) return;
  const std::vector<std::string> names = unused_parameters();
  if (names.empty()) return;
  warned_unused_ = true;
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) list += cat(" ", names[i]);
  log_warning("backward did not reach ", names.size(),
              " parameters, whose gradients count as zero:", list,
              names.size() > kShown ? " ..." : "");
}

}  // namespace shale::comm
