#include "shale/models/plan/time/layout_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/plan/time/at_once.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

constexpr int64_t kSteps = 2;  // all optimizer states exist in the second step

double tagged(const TimedRank& rank, MemoryTag tag) {
  return double(rank.memory.device.by_tag[static_cast<size_t>(tag)]);
}

}  // namespace

LayoutBounds::Key LayoutBounds::key_of(const RunConfig& layout) {
  return {layout.tensor, layout.context, layout.expert, layout.micro_batch, layout.recompute};
}

void LayoutBounds::add(const RunConfig& layout) {
  const auto [at, is_new] = classes_.try_emplace({layout.tensor, layout.context, layout.expert});
  Class& of = at->second;
  if (is_new) of.layout = layout;
  of.micro_batch = std::max(of.micro_batch, layout.micro_batch);
  of.recompute = std::min(of.recompute, layout.recompute);
  of_step_.try_emplace(step_key(layout), layout);
}

LayoutBounds::StepKey LayoutBounds::step_key(const RunConfig& layout) {
  return {layout.tensor, layout.expert, layout.offload != OffloadKind::kNone};
}

const LayoutBounds::Class& LayoutBounds::class_of(const RunConfig& layout) const {
  return classes_.at({layout.tensor, layout.context, layout.expert});
}

void LayoutBounds::rehearse_classes() {
  const std::unique_ptr<Task> task = make_task_();
  for (Module* unit : task->units()) {
    for (const Parameter* parameter : unit->parameters()) in_units_ += double(parameter->numel());
  }
  for (const Parameter* parameter : task->model().parameters()) {
    in_all_ += double(parameter->numel());
    if (parameter->sharding.is_of_experts) in_experts_ += double(parameter->numel());
  }
  std::vector<Key> keys;
  for (const auto& [key, of] : classes_) {
    const auto& [tensor, context, expert] = key;
    keys.emplace_back(tensor, context, expert, of.micro_batch, of.recompute);
  }
  std::erase_if(keys, [this](const Key& key) { return knows(key); });
  const auto found = at_once(keys, [this](const Key& key) { return rehearse(key); });
  for (size_t i = 0; i < keys.size(); ++i) learn(keys[i], found[i]);
  std::vector<const RunConfig*> layouts;
  for (const auto& [key, layout] : of_step_) layouts.push_back(&layout);
  const auto steps = at_once(layouts, [this](const RunConfig* of) { return step_bound(*of); });
  for (size_t i = 0; i < layouts.size(); ++i) steps_[step_key(*layouts[i])] = steps[i];
}

double LayoutBounds::expert_share(const RunConfig& layout) const {
  const double dealt = in_experts_ / layout.expert;
  return dealt / (dealt + (in_all_ - in_experts_) / layout.tensor);
}

LayoutBound LayoutBounds::coarse(const RunConfig& layout) {
  const Class& of = class_of(layout);
  const Key key{layout.tensor, layout.context, layout.expert, of.micro_batch, of.recompute};
  if (!knows(key)) rehearse_classes();
  Rehearsed least = rehearsed_.at(key);
  if (!least.is_possible) return {};  // the dry run failed, perhaps only for its larger micro-batch
  least.micro_s *= double(layout.micro_batch) / double(of.micro_batch);
  least.activations = 0;
  return bound_of(layout, least);
}

LayoutBound LayoutBounds::fine(const RunConfig& layout) const {
  const Rehearsed& found = rehearsed_.at(key_of(layout));
  return found.is_possible ? bound_of(layout, found)
                           : LayoutBound{.likely_bytes = std::numeric_limits<double>::max()};
}

LayoutBounds::Rehearsed LayoutBounds::rehearse(const Key& key) const {
  const auto& [tensor, context, expert, micro_batch, recompute] = key;
  RunConfig layout = classes_.at({tensor, context, expert}).layout;
  layout.micro_batch = micro_batch;
  layout.recompute = recompute;
  layout.offload = OffloadKind::kNone;
  layout.offload_to = "none";
  try {
    const std::unique_ptr<Task> task = make_task_();
    const TimedRank rank = planned(std::move(layout), *task, /*steps=*/1);
    const RankTime& time = rank.time;
    // Context-parallel and expert-parallel ranks reduce gradients during backward. That time
    // belongs to data parallelism.
    const double data_s = time.slowed + time.exposed[size_t(comm::Lane::kData)];
    return {.is_possible = true,
            .micro_s = time.acting - data_s - time.exposed_host,
            .update_s = std::max(time.total - time.acting - data_s, 0.0),
            .parameters = tagged(rank, MemoryTag::kParameter),
            .gradients = tagged(rank, MemoryTag::kGradient),
            .activations = tagged(rank, MemoryTag::kActivation)};
  } catch (const ConfigError&) {
    // The model cannot be split like this, or an option requires a part that this dry run leaves
    // out, such as --zero 2. Only the plan of the layout itself can tell.
    return {};
  }
}

TimedRank LayoutBounds::planned(RunConfig layout, Task& task, int64_t steps) const {
  layout.pipeline = 1;
  layout.pipeline_chunks = layout.zero = layout.shard_ranks = 0;
  if (layout.offload == OffloadKind::kParameters) layout.offload = OffloadKind::kOptimizer;
  const bool adds_statistics = optimizer_row(layout.optimizer).adds_statistics;
  if (layout.expert > 1 && adds_statistics) layout.zero = 1;  // ZeRO is then required
  const int model_ranks = layout.tensor * layout.context;
  const int data = layout.expert / std::gcd(layout.expert, model_ranks);
  layout.global_batch = layout.micro_batch * data;
  layout.steps = steps;
  layout.eval_every = 0;
  return plan_time(layout, task, 0, model_ranks * data, machines_);
}

LayoutBounds::StepBound LayoutBounds::step_bound(const RunConfig& layout) const {
  try {
    const TimedRank rank = planned(layout, *make_task_(), kSteps);
    const RankTime& time = rank.time;
    return {.states = tagged(rank, MemoryTag::kOptimizer),
            .host_s = std::max({time.to_host, time.from_host, time.on_host})};
  } catch (const ConfigError&) {  // the model cannot be split like this
    return {};
  }
}

LayoutBound LayoutBounds::bound_of(const RunConfig& layout, const Rehearsed& of) const {
  const StepBound& step = steps_.at(step_key(layout));
  const double held = least_bytes(layout, of, step);
  // The first stage keeps activations of as many micro-batches as there are stages.
  const double likely = held + of.activations;
  return {.seconds = least_seconds(layout, of, step),
          .bytes = static_cast<int64_t>(layout.pipeline == 1 ? likely : held),
          .likely_bytes = likely};
}

// Excludes activations. The largest stage holds at least the mean of all stages.
double LayoutBounds::least_bytes(const RunConfig& layout, const Rehearsed& of,
                                 const StepBound& step) const {
  const double shared = most_shares(layout), stages = layout.pipeline;
  const auto part = [&](double bytes, int stage) {
    return bytes / stages / (layout.zero >= stage ? shared : 1.0);
  };
  double held = part(step.states, 1);
  if (layout.offload != OffloadKind::kParameters) held += part(of.parameters, 3);
  // From ZeRO-2 on, offload also moves gradients to host memory.
  const bool offloads = layout.offload != OffloadKind::kNone;
  if (!offloads || layout.zero < 2) held += part(of.gradients, 2);
  return held;
}

double LayoutBounds::least_seconds(const RunConfig& layout, const Rehearsed& of,
                                   const StepBound& step) const {
  const double micros = double(micro_batches(layout)), stages = layout.pipeline;
  const double shared = layout.zero > 0 ? most_shares(layout) : 1;
  // A stage waits for its first micro-batch until all stages before it have run its forward, and
  // they run its backward after this stage. If stage s takes t_s per micro-batch, a step takes at
  // least t_0 + ... + t_(s-1) + m t_s for every s; the largest of these is least if all t_s are
  // equal. For stages with several chunks only the work counts.
  const double part = layout.pipeline_chunks > 1 || layout.pipeline == 1
                          ? 1 / stages
                          : 1 / (micros * (1 - std::pow(1 - 1 / micros, stages)));
  // The host runs the optimizer step, overlapped with the device.
  const double update_s = layout.offload == OffloadKind::kNone ? of.update_s : 0;
  const double update = update_s / stages / shared;
  const double computing = micros * of.micro_s * part + update;
  const Sharing sharing = sharing_seconds(layout, of);
  // With ZeRO-0 and 1 reductions overlap only the last micro-batch and the update, and all-gathers
  // of parameters only the update and the first micro-batch; in pipelines also other stages' work.
  const bool is_late = layout.zero <= 1 && layout.pipeline == 1;
  const auto waits = [&](double seconds) {
    return is_late ? std::max(seconds - of.micro_s - update, 0.0) : 0.0;
  };
  return std::max({computing + waits(sharing.sums) + waits(sharing.gathers),
                   sharing.sums + sharing.gathers, step.host_s / stages / shared});
}

LayoutBounds::Sharing LayoutBounds::sharing_seconds(const RunConfig& layout,
                                                    const Rehearsed& of) const {
  // A shard group has one rank of each tensor group. As a tensor group fits in a node, the shard
  // group has ranks on every node up to its last one.
  const int64_t ranks = shard_ranks(layout);
  const int64_t last = (ranks - 1) * layout.tensor / machines_.cluster.devices_per_node;
  const GroupSpread group{.ranks = ranks, .nodes = last + 1};
  // Expert parameters are sharded over fewer ranks: those that hold the same experts.
  const GroupSpread of_experts = expert_group(layout);
  const double experts = layout.expert > 1 ? expert_share(layout) : 0;
  const double stages = layout.pipeline, micros = double(micro_batches(layout));
  const auto seconds = [&](comm::CollectiveOp op, double bytes) {
    double sum = bandwidth_seconds(op, (1 - experts) * bytes / stages, group);
    if (experts > 0 && of_experts.ranks > 1) {
      sum += bandwidth_seconds(op, experts * bytes / stages, of_experts);
    }
    return sum;
  };
  const bool is_coded = layout.quantize_gathers != CodedBits::kNone ||
                        layout.quantize_reductions != CodedBits::kNone || gathers_fp8(layout) ||
                        layout.grad_dtype != DType::kF32 || layout.outer_every > 0 ||
                        layout.optimizer == OptimizerKind::kOneBitAdam;
  if (is_coded || ranks == 1) return {};
  using enum comm::CollectiveOp;
  const double gathers = seconds(kAllGather, of.parameters);
  const double sums = seconds(kReduceScatterSum, of.gradients);
  if (layout.zero == 0) return {.sums = 2 * sums};
  if (layout.zero == 1) return {.sums = sums, .gathers = gathers};
  const bool is_freed = layout.zero == 3 && layout.expert == 1;
  return {.sums = micros * sums,
          .gathers = (is_freed ? micros * in_units_ / in_all_ : 1) * gathers};
}

// The ranks that hold the same experts are `layout.expert` ranks apart.
GroupSpread LayoutBounds::expert_group(const RunConfig& layout) const {
  const int64_t all = shard_ranks(layout) * layout.tensor, ranks = all / layout.expert;
  const int64_t of_node = machines_.cluster.devices_per_node;
  return {.ranks = ranks, .nodes = (all + of_node - 1) / of_node};
}

double LayoutBounds::bandwidth_seconds(comm::CollectiveOp op, double bytes,
                                       const GroupSpread& group) const {
  char memory = 0;
  const View whole = make_view(&memory, DType::kF32, {static_cast<int64_t>(bytes / 4)});
  const comm::CollectiveCall call{.op = op, .in = whole, .out = whole};
  double seconds = collective_seconds(machines_.cluster, call, group) -
                   collective_latency(machines_.cluster, group);
  // Uses the measurement of a group with as many ranks, if there is one.
  for (const FittedLink& link : machines_.cluster.links) {
    if (link.op != op || link.ranks != group.ranks) continue;
    seconds = std::min(seconds, bytes / link.bandwidth);
  }
  return std::max(seconds, 0.0);
}

int64_t LayoutBounds::micro_batches(const RunConfig& layout) const {
  const comm::ParallelSizes sizes = parallel_sizes(layout, ranks_);
  return batch_layout(layout, int64_t(sizes.replica) * sizes.shard).micro_batches(0);
}

double LayoutBounds::most_shares(const RunConfig& layout) const {
  const double shared = double(shard_ranks(layout));
  return layout.expert > 1 ? std::max(shared, shared * layout.tensor / layout.expert) : shared;
}

int64_t LayoutBounds::shard_ranks(const RunConfig& layout) const {
  return int64_t(parallel_sizes(layout, ranks_).shard) * layout.context;
}

}  // namespace shale::models
