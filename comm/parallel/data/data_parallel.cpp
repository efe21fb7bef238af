#include "shale/comm/parallel/data/data_parallel.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel_checks.h"
#include "shale/comm/parallel/data/local_steps.h"
#include "shale/comm/parallel/data/shard_peers.h"
#include "shale/comm/sums/compressed_sum.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::comm {
namespace {

// Number of bits, of 32, for the index of a sample of one rank in a step. The index selects dropout
// masks: a rank with more than 2^18 samples would use masks of the next rank.
constexpr int kSamplesOfRank = 18;

// Keeps the gradients of the two uses of tied tables apart. They are added at the end, so that the
// order of additions does not depend on the modules between the two uses.
void keep_ties_apart(std::vector<UnitPlan>& plans) {
  for (UnitPlan& plan : plans) {
    for (Parameter* parameter : plan.parameters) {
      if (!parameter->tied || !parameter->trainable) continue;
      plan.tied.insert(parameter);
      plan.apart.push_back(parameter);
    }
  }
}

// Inserts after each parameter the same parameter of the other tensor ranks in this process.
void add_hosted(UnitPlan& plan) {
  for (std::vector<Parameter*>* const list : {&plan.parameters, &plan.apart}) {
    std::vector<Parameter*> all;
    for (Parameter* parameter : *list) {
      all.push_back(parameter);
      for (size_t i = 1; i < parameter->peers.size(); ++i) all.push_back(parameter->peers[i]);
    }
    *list = std::move(all);
  }
  const std::set<const Parameter*> tied = plan.tied;
  for (const Parameter* parameter : tied) {
    plan.tied.insert(parameter->peers.begin(), parameter->peers.end());
  }
}

DataParallelOptions with_seed(DataParallelOptions options, Context& context) {
  if (!options.seed) options.seed = context.next_model_seed();
  return options;
}

// Adds the parameters of the other tensor ranks in this process, and compares the plans of all
// ranks. Gives the second uses of tables a separate autograd state; this must come before the
// parameters get memory, which both uses share.
void prepare(std::vector<UnitPlan>& plans, const ShardGroups& groups,
             const DataParallelOptions& options, const UnitOptions& unit) {
  if (groups.hosted != nullptr) std::for_each(plans.begin(), plans.end(), add_hosted);
  check_exchange(groups, plans);
  compare_ranks(groups, options, plans, unit);
  for (const UnitPlan& plan : plans) {
    for (Parameter* parameter : plan.apart) parameter->keep_apart(true);
  }
}

// Chooses the units that DataParallelOptions::offload applies to: those that forward reaches last.
// The root is last in `plans`, but forward reaches it first.
std::vector<bool> choose_offloaded(const std::vector<UnitPlan>& plans,
                                   const DataParallelOptions& options) {
  const auto elements = [](const UnitPlan& plan) {
    double sum = 0;
    for (const Parameter* parameter : plan.parameters) {
      if (parameter->trainable) sum += static_cast<double>(parameter->numel());
    }
    return sum;
  };
  double wanted = 0;
  for (const UnitPlan& plan : plans) wanted += options.offload_share * elements(plan);
  std::vector<bool> chosen(plans.size());
  for (size_t k = 1; k <= plans.size() && wanted > 0; ++k) {
    const size_t i = k < plans.size() ? plans.size() - 1 - k : plans.size() - 1;
    chosen[i] = true;
    wanted -= elements(plans[i]);
  }
  return chosen;
}

}  // namespace

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

DataParallel::DataParallel(Context& context, const ShardGroups& groups,
                           const DataParallelOptions& options)
    : options_(with_seed(options, context)),
      shared_{.memory = context.memory(), .groups = groups, .options = options_.sharding()},
      hooks_(groups.hosted),
      gathers_(shared_, options.prefetch,
               options.offload.tier != nullptr && options.offload.tier->on_disk()),
      sync_(shared_, gathers_) {
  check_options(shared_, options_);
  const int replica = groups.replicate != nullptr ? groups.replicate->rank() : 0;
  const int rank = replica * groups.shard->size() + groups.shard->rank();
  context.autograd().first_sample = static_cast<uint64_t>(rank) << kSamplesOfRank;
  context.update_step([&](StepState& step) { step.sample = context.autograd().first_sample; });
  shared_.peers = peers_over(shared_);
  shared_.all_peers = all_peers_over(shared_);
  if (groups.replicate != nullptr) {
    shared_.replicas = std::make_shared<ShardReplicas>(
        replicas_of(*groups.replicate, [this](const Work& work) { shared_.wait(work); }));
  }
  // Peers access gradients and parameters directly, so this memory comes from the group. Set the
  // provider before the first buffer exists.
  has_provider_ = !shared_.single();
  if (has_provider_) {
    context.allocator().set_provider(MemoryTag::kGradient, &groups.shard->memory());
    if (options.stage > 0) {
      context.allocator().set_provider(MemoryTag::kParameter, &groups.shard->memory());
    }
  }
  const auto once = [this](std::string_view what, void (GradientSync::*act)()) {
    return [this, what, act] { hooks_.once(what, [this, act] { (sync_.*act)(); }); };
  };
  backward_hooks_ = std::make_unique<BackwardHooksScope>(
      context, BackwardHooks{.begin = once("backward begins", &GradientSync::backward_begins),
                             .end = once("backward ends", &GradientSync::backward_ends)});
}

DataParallel::DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
                           const ShardGroups& groups, const DataParallelOptions& options)
    : DataParallel(context, groups, options) {
  std::vector<UnitPlan> plans = plan_units(model, units);
  if (options.reproducible) keep_ties_apart(plans);
  install(std::move(plans));
  for (const Module* copy : hooks_.copies_of(model)) bind_buffers(*copy);
}

DataParallel::DataParallel(std::vector<UnitPlan> plans, Context& context, const ShardGroups& groups,
                           const DataParallelOptions& options)
    : DataParallel(context, groups, options) {
  install(std::move(plans));
}

void DataParallel::install(std::vector<UnitPlan> plans) {
  prepare(plans, shared_.groups, options_, options_.unit());
  const std::vector<bool> offloaded = choose_offloaded(plans, options_);
  for (size_t i = 0; i < plans.size(); ++i) {
    UnitOptions unit = options_.unit();
    if (!offloaded[i]) unit.offload = {};
    install(plans[i], unit);
  }
}

DataParallel::~DataParallel() {
  local_steps_.reset();
  shards_.clear();
  if (!owned_by_model_) {
    hooks_.remove();
    for (const auto& unit : units_) unit->detach();
    for (Buffer* buffer : buffers_) buffer->unbind();
  }
  units_.clear();  // waits for their collectives in flight, then frees the units
  if (!has_provider_) return;
  // The provider may be destroyed before the context.
  shared_.memory->allocator.set_provider(MemoryTag::kGradient, nullptr);
  shared_.memory->allocator.set_provider(MemoryTag::kParameter, nullptr);
}

FlatUnit& DataParallel::add_unit(Module& module, const UnitOptions& options) {
  for (const auto& unit : units_) {
    if (!is_inside(&module, &unit->module())) continue;
    throw ConfigError(cat("data parallel: ", unit_name(module), " was sharded after ", unit->name(),
                          ", which already contains its parameters; shard inner modules first"));
  }
  std::vector<UnitPlan> plans = {plan_unit(module, taken_)};
  if (options_.reproducible) keep_ties_apart(plans);
  prepare(plans, shared_.groups, options_, options);
  return install(plans.front(), options);
}

FlatUnit& DataParallel::install(const UnitPlan& plan, const UnitOptions& options) {
  check_unit_options(shared_, options);
  if (options.offload.tier != nullptr && shared_.gathers == nullptr) {
    shared_.gathers = std::make_unique<Stream>(shared_.context().backend());
  }
  taken_.insert(plan.parameters.begin(), plan.parameters.end());
  units_.push_back(std::make_unique<FlatUnit>(shared_, plan, options));
  FlatUnit& unit = *units_.back();
  sync_.add_unit(unit);
  const auto before_backward = [this, &unit] {
    sync_.backward_reaches();
    gathers_.before_backward(unit);
  };
  hooks_.add(unit, HookPoint::kBeforeForward, [this, &unit, before_backward] {
    gathers_.in_backward() ? before_backward() : gathers_.before_forward(unit);
  });
  hooks_.add(unit, HookPoint::kAfterForward, [this, &unit] { gathers_.after_forward(unit); });
  if (options_.stage >= 3) {
    hooks_.add(unit, HookPoint::kBeforeBackward, before_backward);
    hooks_.add(unit, HookPoint::kAfterBackward, [&unit] { unit.reshard(); });
    hooks_.add(unit, HookPoint::kAfterLastBackward,
               [this, &unit] { sync_.after_last_backward(unit); });
  }
  order_units();
  for (const Module* copy : hooks_.copies_of(unit.module())) bind_buffers(*copy);
  return unit;
}

void DataParallel::run(const std::function<void(int rank)>& body) const {
  hosted_ranks() != nullptr ? hosted_ranks()->run(body) : body(0);
}

FlatUnit& DataParallel::unit(const Module& module) const {
  for (const auto& unit : units_) {
    if (&unit->module() == &module) return *unit;
  }
  throw InternalError(
      cat("data parallel: ", module.full_name(), " is not a unit; call add_unit() for it first"));
}

// Orders units as forward reaches them: those that enclose others, then the rest in given order.
void DataParallel::order_units() {
  std::vector<FlatUnit*> order;
  for (const auto& unit : units_) {
    bool encloses = false;
    for (const auto& other : units_) {
      encloses = encloses || (other != unit && is_inside(&other->module(), &unit->module()));
    }
    unit->set_encloses_units(encloses);
    order.insert(encloses ? order.begin() : order.end(), unit.get());
  }
  shards_.clear();
  for (FlatUnit* unit : order) {
    for (const auto& buffer : unit->buffers()) {
      if (buffer->gradient() == nullptr) continue;
      shards_.push_back(buffer->shard());
      shards_.back().gradient->check = [this, chunk = static_cast<size_t>(unit->chunk())] {
        sync_.check_reduced(chunk);
      };
      // With experts in stage 0, every rank of buffer->ranks() has a copy of the gradient. Only one
      // of them counts in the norm.
      if (options_.stage == 0 && shared_.groups.experts != nullptr) {
        shards_.back().counts = buffer->ranks().rank() == 0;
        shards_.back().repeats = !shards_.back().counts;
      }
      const PipelineStages* const stages = shared_.groups.stages;
      if (stages == nullptr || buffer->spec().traits.use != TableUse::kTied) continue;
      shards_.back().counts = shards_.back().counts &&
                              stages->is_first_holder(*buffer->layout().entries.front().parameter);
    }
  }
  sync_.set_order(order);
  gathers_.set_units(std::move(order));
}

void DataParallel::finish_gathers() {
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      if (!buffer->spec().shards_values()) buffer->values().unshard();
    }
  }
}

std::vector<bool> DataParallel::gradient_flags() {
  std::vector<bool> flags;
  sync_.for_each_flag([&](const bool& flag) { flags.push_back(flag); });
  return flags;
}

void DataParallel::set_gradient_flags(const std::vector<bool>& flags) {
  size_t next = 0;
  sync_.for_each_flag([&](bool& flag) { flag = flags.at(next++); });
}

// Ranks that together hold the gradient of this tensor rank; null if this rank has all of it.
ProcessGroup* DataParallel::gradient_holders() const {
  if (shared_.groups.stages != nullptr) return shared_.groups.stages->whole;
  return options_.stage > 0 || shared_.groups.experts != nullptr ? shared_.groups.shard : nullptr;
}

void DataParallel::clip_grad_norm(float max_norm, optim::OutlierSkip* outliers) {
  Context& context = shared_.context();
  const ShardGroups& groups = shared_.groups;
  optim::ClipRanks ranks;
  if (groups.stages != nullptr || groups.tensor != nullptr || groups.experts != nullptr) {
    ranks.gather = [&](const Tensor& x) {
      Tensor parts = x;
      for (ProcessGroup* group : {gradient_holders(), groups.tensor}) {
        if (group != nullptr) parts = gather_norms(shared_, *group, parts);
      }
      return parts;
    };
  }
  const ReplicaGradients of = shared_.replica_gradients;
  if (groups.replicate != nullptr && of != ReplicaGradients::kSum) {
    ranks.copies = of == ReplicaGradients::kShare ? groups.replicate->size() : 1;
    ranks.agree = [&](const View& flag) {
      shared_.wait(groups.replicate->all_reduce_max(
          flag, {.tag = "gradient is finite", .stream = context.exec().stream}));
    };
  }
  sync_.check_all_reduced();
  optim::clip_grad_norm(context, shards_, max_norm, outliers, ranks);
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

void DataParallel::keep_local_steps(offload::HostTier& tier, const LocalStepsOptions& options) {
  local_steps_ = std::make_unique<LocalSteps>(*this, tier, options);
}

double DataParallel::sum_over_ranks(double count) const {
  shared_.context();  // throws if the context has ended; the groups may have ended too
  double sum = count;
  for (ProcessGroup* group : {shared_.groups.shard, shared_.groups.replicate}) {
    if (group == nullptr) continue;
    group->host().all_reduce_sum(make_view(&sum, {1}), {.tag = "sum over ranks"});
  }
  return sum;
}

Tensor DataParallel::mean_over_ranks(const Tensor& loss, double weight) const {
  if (const ProcessGroup* const tensor = shared_.groups.tensor; tensor && tensor->size() > 1) {
    throw ConfigError(cat(
        "mean over ranks: ", tensor->size(),
        " tensor-parallel ranks (ShardGroups::tensor) share the layers of this model, so it is "
        "unknown whether `loss` covers all rows or only this rank's rows; use scale(loss, weight / "
        "sum). If `loss` covers all rows, as nn::Embedding::loss() does, sum is "
        "sum_over_ranks(weight); if it covers this rank's rows, also add sum over the tensor "
        "group"));
  }
  const double sum = sum_over_ranks(weight);
  if (!(sum > 0)) {
    throw ConfigError(cat("mean over ranks: the weights of all ranks add up to ", sum,
                          ", expected more than 0; this rank's weight is ", weight));
  }
  return scale(loss, static_cast<float>(weight / sum));
}

void DataParallel::masters_changed() {
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      if (buffer->gradient() != nullptr) buffer->values().masters_changed();
    }
  }
}

void DataParallel::unshard() {
  for (const auto& unit : units_) unit->start_unshard();
  for (const auto& unit : units_) unit->unshard();
}

void DataParallel::reshard() {
  for (const auto& unit : units_) unit->reshard();
}

// Gives memory to a module's buffers, unless another unit or the module itself has done so.
void DataParallel::bind_buffers(const Module& module) {
  for (Buffer* buffer : module.buffers()) {
    if (!buffer->needs_memory()) continue;
    buffer->bind(shared_.context());
    buffers_.push_back(buffer);
  }
}

void DataParallel::average_buffers() {
  std::vector<ProcessGroup*> groups = {shared_.groups.shard};
  if (shared_.groups.replicate != nullptr) groups.push_back(shared_.groups.replicate);
  for (Buffer* buffer : buffers_) {
    if (buffer->ranks != BufferRanks::kMean) continue;
    int ranks = 1;
    for (ProcessGroup* group : groups) {
      ranks *= group->size();
      if (group->size() == 1) continue;
      shared_.wait(group->all_reduce_sum(
          buffer->value, {.tag = "buffers", .stream = shared_.context().exec().stream}));
    }
    if (ranks > 1) scale_(buffer->value, 1 / static_cast<float>(ranks));
  }
}

}  // namespace shale::comm
