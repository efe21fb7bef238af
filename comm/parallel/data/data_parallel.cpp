#include "shale/comm/parallel/data/data_parallel.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/parallel/data/local_steps.h"
#include "shale/comm/parallel/data/shard_peers.h"
#include "shale/comm/sums/compressed_sum.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::comm {

namespace {

// Bits of the number of a rank's sample in a step, for dropout masks, of 32: there are so many
// samples on a rank before its masks are those of the next rank.
constexpr int kSamplesOfRank = 18;

// One way of adding, whatever is between the two uses of a table: each by itself, then both.
void keep_ties_apart(std::vector<UnitPlan>& plans) {
  for (UnitPlan& plan : plans) {
    for (Parameter* parameter : plan.parameters) {
      if (!parameter->tied || !parameter->trainable) continue;
      plan.tied.insert(parameter);
      plan.apart.push_back(parameter);
    }
  }
}

// Before any of their parameters gets memory, which the leaves of both uses share.
void make_leaves_apart(const std::vector<UnitPlan>& plans) {
  for (const UnitPlan& plan : plans) {
    for (Parameter* parameter : plan.apart) parameter->keep_apart(true);
  }
}

// The units that DataParallelOptions::offload is for. The root, which comes last here, is what
// forward reaches first.
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

DataParallel::DataParallel(Context& context, const ShardGroups& groups,
                           const DataParallelOptions& options)
    : shared_{.context = context, .groups = groups, .options = {}},
      options_(options),
      reductions_(options.overlap) {
  if (!options_.seed) options_.seed = context.next_model_seed();
  shared_.options = options_.sharding();
  validate();
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
  // Peers reach these buffers directly; the provider is set before the first of them is allocated.
  if (!shared_.single()) {
    context.allocator().set_provider(MemoryTag::kGradient, &groups.shard->memory());
    if (options.stage > 0) {
      context.allocator().set_provider(MemoryTag::kParameter, &groups.shard->memory());
    }
  }
  // One reduction may be under way while the next unit's gradients are made.
  if (options.stage >= 2) shared_.before_gradient = [this] { reductions_.finish(/*leave=*/1); };
  backward_hooks_ = std::make_unique<BackwardHooksScope>(
      context,
      BackwardHooks{.begin = [this] { once("backward begins", [this] { backward_begins(); }); },
                    .end = [this] { once("backward ends", [this] { backward_ends(); }); }});
}

DataParallel::DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
                           const ShardGroups& groups, const DataParallelOptions& options)
    : DataParallel(context, groups, options) {
  std::vector<UnitPlan> plans = plan_units(model, units);
  if (options.reproducible) keep_ties_apart(plans);
  install(std::move(plans));
  for (const Module* copy : copies_of(model)) bind_buffers(*copy);
}

DataParallel::DataParallel(std::vector<UnitPlan> plans, Context& context, const ShardGroups& groups,
                           const DataParallelOptions& options)
    : DataParallel(context, groups, options) {
  install(std::move(plans));
}

void DataParallel::install(std::vector<UnitPlan> plans) {
  for (UnitPlan& plan : plans) add_hosted(plan);
  check_exchange(plans);
  compare_ranks(plans, options_.unit());
  make_leaves_apart(plans);
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
    for (const InstalledHook& hook : hooks_) hook.module->remove_hook(hook.point, hook.id);
    for (const auto& unit : units_) unit->detach();
    for (Buffer* buffer : buffers_) buffer->unbind();
  }
  units_.clear();  // after the collectives in flight
  if (shared_.single()) return;
  // Their provider may go before the context does.
  shared_.context.allocator().set_provider(MemoryTag::kGradient, nullptr);
  shared_.context.allocator().set_provider(MemoryTag::kParameter, nullptr);
}

FlatUnit& DataParallel::add_unit(Module& module, const UnitOptions& options) {
  for (const auto& unit : units_) {
    if (!is_inside(&module, &unit->module())) continue;
    throw ConfigError(cat("data parallel: ", unit_name(module), " comes after ", unit->name(),
                          ", which has its parameters already; want inner modules first"));
  }
  std::vector<UnitPlan> plans = {plan_unit(module, taken_)};
  if (options_.reproducible) keep_ties_apart(plans);
  add_hosted(plans.front());
  check_exchange(plans);
  compare_ranks(plans, options);
  make_leaves_apart(plans);
  return install(plans.front(), options);
}

FlatUnit& DataParallel::install(const UnitPlan& plan, const UnitOptions& options) {
  validate(options);
  if (options.offload.tier != nullptr && shared_.gathers == nullptr) {
    shared_.gathers = std::make_unique<Stream>(shared_.context.backend());
  }
  taken_.insert(plan.parameters.begin(), plan.parameters.end());
  units_.push_back(std::make_unique<FlatUnit>(shared_, plan, options));
  FlatUnit& unit = *units_.back();
  for (FlatGradient* gradient : unit.gradients()) {
    gradient->add_ready_hook(
        [this, &unit](const FlatEntry& entry) { gradient_ready(unit, entry); });
  }
  add_hook(unit, HookPoint::kBeforeForward, &DataParallel::before_forward);
  add_hook(unit, HookPoint::kAfterForward, &DataParallel::after_forward);
  if (options_.stage >= 3) {
    add_hook(unit, HookPoint::kBeforeBackward, &DataParallel::before_backward);
    add_hook(unit, HookPoint::kAfterBackward, &DataParallel::after_backward);
    add_hook(unit, HookPoint::kAfterLastBackward, &DataParallel::after_last_backward);
  }
  order_units();
  for (const Module* copy : copies_of(unit.module())) bind_buffers(*copy);
  return unit;
}

FlatUnit& DataParallel::unit(const Module& module) const {
  for (const auto& unit : units_) {
    if (&unit->module() == &module) return *unit;
  }
  throw InternalError(cat("data parallel: ", module.full_name(), " is not a unit"));
}

// Forward reaches units that enclose others first, then the others as they were given.
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
  chunks_.assign(1, {});
  for (FlatUnit* unit : order) {
    for (const auto& buffer : unit->buffers()) {
      if (buffer->gradient() == nullptr) continue;
      shards_.push_back(buffer->shard());
      shards_.back().gradient->check = [this, chunk = static_cast<size_t>(unit->chunk())] {
        check_reduced(chunk);
      };
      // Without sharding, ranks that are added up have copies.
      if (options_.stage == 0 && shared_.groups.experts != nullptr) {
        shards_.back().counts = buffer->ranks().rank() == 0;
        shards_.back().repeats = !shards_.back().counts;
      }
      const PipelineStages* const stages = shared_.groups.stages;
      if (stages == nullptr || buffer->spec().traits.use != TableUse::kTied) continue;
      shards_.back().counts = shards_.back().counts &&
                              stages->is_first_holder(*buffer->layout().entries.front().parameter);
    }
    chunks_.resize(std::max(chunks_.size(), static_cast<size_t>(unit->chunk()) + 1));
    Chunk& chunk = chunks_[static_cast<size_t>(unit->chunk())];
    chunk.units.push_back(unit);
    if (unit->trainable()) chunk.order.insert(chunk.order.begin(), unit);
  }
  order_.set_guess(std::move(order));
}

// ---- Hooks ----

bool DataParallel::in_backward() const {
  return shared_.context.autograd().backward_depth > 0;
}

// Whether a backward follows the forward that runs.
bool DataParallel::recording() const {
  const AutogradState& state = shared_.context.autograd();
  return state.enabled && state.training;
}

void DataParallel::gather_ahead(const std::vector<FlatUnit*>& chosen,
                                const std::vector<FlatUnit*>& recorded) {
  if (!options_.overlap) return;  // nothing would run meanwhile
  if (!chosen.empty()) return start_in_order(chosen, chosen.size());
  start_in_order(recorded, static_cast<size_t>(options_.prefetch));
}

void DataParallel::before_forward(FlatUnit& unit) {
  if (in_backward()) return before_backward(unit);  // recompute
  unit.start_unshard();
  gather_ahead(unit.forward_prefetch, order_.forward(unit, units_ahead()));
  unit.unshard();
}

void DataParallel::after_forward(FlatUnit& unit) {
  if (in_backward()) return;  // which goes on to use the parameters
  if (recording()) {
    unit.reshard_after_forward();
  } else {
    unit.reshard();
  }
}

void DataParallel::before_backward(FlatUnit& unit) {
  backward_reaches();
  unit.start_unshard();
  gather_ahead(unit.backward_prefetch, order_.backward(unit, unit.encloses_units(), units_ahead()));
  unit.unshard();
}

void DataParallel::after_backward(FlatUnit& unit) {
  unit.reshard();
}

// No use of the module, earlier in forward, can add to its gradients any more.
void DataParallel::after_last_backward(FlatUnit& unit) {
  if (reduces() && unit.trainable() && !unit.reduced()) reductions_.start(unit);
}

// It may be another model's: until it reaches this one nothing is changed that it would not find
// again in the end.
void DataParallel::backward_begins() {
  reached_ = false;
  for (FlatUnit* unit : chunk().units) unit->prepare_backward();
  if (announced_) backward_reaches();
}

void DataParallel::backward_reaches() {
  if (std::exchange(reached_, true)) return;
  if (!announced_ && chunks_.size() > 1) {
    throw InternalError(cat("data parallel: a backward of a model in ", chunks_.size(),
                            " chunks, want begin_backward() to say of which"));
  }
  if (last_) check_micro_batches();
  ++chunk().in_tree;
  reductions_.begin_backward(chunk().order, last_);
  order_.begin_backward();
  for (FlatUnit* unit : chunk().units) unit->begin_backward();
}

void DataParallel::backward_ends() {
  if (reached_ && reduces()) {
    flush();
  } else if (reached_ && must_reduce()) {
    chunk().has_local = true;
  }
  for (FlatUnit* unit : chunk().units) {
    for (FlatGradient* gradient : unit->gradients()) gradient->end_backward();
  }
  if (!reached_) return;
  for (FlatUnit* unit : chunk().units) unit->reshard();
  if (last_) chunk().in_tree = 0;
  announced_ = false;
  if (std::exchange(last_, true)) report_unused();
  chunk_ = 0;
}

// ---- Gradients ----

bool DataParallel::must_reduce() const {
  return !shared_.single() || options_.stage > 0 || options_.reproducible ||
         shared_.groups.tensor != nullptr;
}

bool DataParallel::reduces() const {
  return must_reduce() && !no_sync_ && (last_ || options_.stage >= 2 || options_.reproducible);
}

void DataParallel::set_no_sync(bool no_sync) {
  if (no_sync && options_.reproducible) {
    throw ConfigError(
        "data parallel: a reproducible run reduces every micro-batch; want no no_sync");
  }
  no_sync_ = no_sync;
}

void DataParallel::begin_backward(bool last, int chunk) {
  if (chunk < 0 || static_cast<size_t>(chunk) >= chunks_.size()) {
    throw InternalError(cat("data parallel: chunk ", chunk, " of ", chunks_.size()));
  }
  chunk_ = static_cast<size_t>(chunk);
  if (last) check_micro_batches();
  announced_ = true;
  last_ = last;
}

void DataParallel::gradient_ready(FlatUnit& unit, const FlatEntry& entry) {
  backward_reaches();
  if (static_cast<size_t>(unit.chunk()) != chunk_) {
    throw InternalError(cat("data parallel: the backward of chunk ", chunk_, " has reached ",
                            entry.parameter->full_name(), " of chunk ", unit.chunk()));
  }
  if (!unit.gradient_ready(entry)) return;
  if (!must_reduce()) {
    if (last_ && !no_sync_) unit.finish_alone();
    return;
  }
  // In stage 3 reductions begin where the backward of a unit's module ends.
  if (!reduces() || options_.stage >= 3 || (options_.stage < 2 && !options_.overlap)) return;
  reductions_.start_ready();
}

void DataParallel::flush() {
  reductions_.flush();
  chunk().has_local = false;
  chunk().reduced = true;
  if (last_ && chunks_.size() == 1 && shared_.groups.stages == nullptr) add_ties();
}

void DataParallel::check_reduced(size_t chunk) const {
  if (!chunks_[chunk].has_local) return;
  throw ConfigError(
      "data parallel: the last begin_backward() was called with last = false, or without "
      "synchronisation, so the ranks' gradients are different; want last = true before the last "
      "backward of a step");
}

void DataParallel::finish_gradients() {
  for (chunk_ = 0; chunk_ < chunks_.size(); ++chunk_) finish_chunk();
  chunk_ = 0;
  add_ties();
}

void DataParallel::finish_chunk() {
  if (!must_reduce()) {
    for (FlatUnit* unit : chunk().order) unit->finish_alone();
    return;
  }
  check_reduced(chunk_);
  if (!chunk().reduced) {  // this rank had no backward
    for (FlatUnit* unit : chunk().order) {
      unit->prepare_backward();
      unit->begin_backward();
    }
    reductions_.begin_backward(chunk().order, /*last=*/true);
    flush();
  }
  chunk().reduced = false;
}

// The gradients of both uses of a table, once each is complete.
void DataParallel::add_ties() {
  const PipelineStages* const stages = shared_.groups.stages;
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      const bool is_tied = buffer->spec().traits.use == TableUse::kTied;
      if (is_tied && stages != nullptr && stages->tie != nullptr) {
        buffer->gradient()->add_over(*stages->tie);
      }
    }
    if (ApartGradient* const apart = unit->apart(); apart != nullptr) {
      const Parameter& first = *apart->gradient().layout().entries.front().parameter;
      place_of(first).buffer->gradient()->add(apart->gradient());
    }
  }
}

void DataParallel::finish_gathers() {
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      if (!buffer->spec().shards_values()) buffer->values().unshard();
    }
  }
}

void DataParallel::for_each_flag(const std::function<void(bool&)>& visit) {
  for (Chunk& chunk : chunks_) {
    visit(chunk.reduced);
    visit(chunk.has_local);
  }
  for (const auto& unit : units_) {
    for (FlatGradient* gradient : unit->gradients()) gradient->for_each_flag(visit);
  }
}

std::vector<bool> DataParallel::gradient_flags() {
  std::vector<bool> flags;
  for_each_flag([&](const bool& flag) { flags.push_back(flag); });
  return flags;
}

void DataParallel::set_gradient_flags(const std::vector<bool>& flags) {
  size_t next = 0;
  for_each_flag([&](bool& flag) { flag = flags.at(next++); });
}

// Those that hold parts of the gradient of this rank's leaves; null: this rank has it all.
ProcessGroup* DataParallel::gradient_holders() const {
  if (shared_.groups.stages != nullptr) return shared_.groups.stages->whole;
  return options_.stage > 0 || shared_.groups.experts != nullptr ? shared_.groups.shard : nullptr;
}

void DataParallel::clip_grad_norm(float max_norm, optim::OutlierSkip* outliers) {
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
          flag, {.tag = "gradient is finite", .stream = shared_.context.exec().stream}));
    };
  }
  for (size_t i = 0; i < chunks_.size(); ++i) check_reduced(i);
  optim::clip_grad_norm(shared_.context, shards_, max_norm, outliers, ranks);
}

void DataParallel::keep_local_steps(offload::HostTier& tier, const LocalStepsOptions& options) {
  local_steps_ = std::make_unique<LocalSteps>(*this, tier, options);
}

double DataParallel::sum_over_ranks(double count) const {
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
        " ranks share the layers of this model (ShardGroups::"
        "tensor), and this function cannot know whether the loss is of this rank's rows or of all; "
        "want scale(loss, weight / sum): the sum of the weights is sum_over_ranks(weight) for a "
        "loss that each of them has whole, as nn::Embedding::loss(), and that added up over the "
        "tensor group too for a loss of a rank's own rows"));
  }
  const double sum = sum_over_ranks(weight);
  if (!(sum > 0)) {
    throw ConfigError(cat("mean over ranks: the weights of all ranks add up to ", sum,
                          ", want more than 0; this rank's is ", weight));
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

}  // namespace shale::comm
