#include "shale/models/plan/time/layout_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "shale/base/error.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

constexpr int64_t kSteps = 2;  // number of steps; from the second on, all optimizer states exist
constexpr double kNever = std::numeric_limits<double>::max();

double tagged(const TimedRank& rank, MemoryTag tag) {
  return double(rank.memory.device.by_tag[static_cast<size_t>(tag)]);
}

// Returns the bytes that a rank holds besides parameters, gradients, states and activations:
// workspace, buffers, and free memory of the allocator.
double rest(const TimedRank& rank) {
  double bytes = double(rank.memory.device.reserved);
  for (const MemoryTag tag : {MemoryTag::kParameter, MemoryTag::kGradient, MemoryTag::kOptimizer,
                              MemoryTag::kActivation}) {
    bytes -= tagged(rank, tag);
  }
  return bytes;
}

}  // namespace

LayoutBounds::Work& LayoutBounds::Work::add(const Work& other, double times) {
  for (double Work::*part : {&Work::micro_s, &Work::update_s, &Work::parameters, &Work::gradients,
                             &Work::states, &Work::activations, &Work::rest}) {
    this->*part += times * other.*part;
  }
  return *this;
}

LayoutBounds::LayoutBounds(const MakeTask& make_task, const MakeShorterTask& make_shorter,
                           int ranks, const PlanMachines& machines)
    : make_task_(make_task),
      make_shorter_(make_shorter),
      ranks_(ranks),
      machines_{machines.cluster, machines.kernels, /*lists_memory=*/false, /*threads=*/1},
      task_(make_task()),
      pieces_(task_->pieces()) {
  layers_ = std::max(1.0, double(task_->units().size()));
  for (Module* unit : task_->units()) {
    for (const Parameter* parameter : unit->parameters()) in_units_ += double(parameter->numel());
  }
  for (const Parameter* parameter : task_->model().parameters()) {
    in_all_ += double(parameter->numel());
    if (parameter->trainable) in_trained_ += double(parameter->numel());
    if (parameter->sharding.is_of_experts) in_experts_ += double(parameter->numel());
  }
}

LayoutBounds::Key LayoutBounds::key_of(const RunConfig& layout) {
  return {layout.tensor, layout.context, layout.expert, layout.micro_batch, layout.recompute};
}

void LayoutBounds::add(const RunConfig& layout) {
  const auto [at, is_new] = classes_.try_emplace({layout.tensor, layout.context, layout.expert});
  Class& of = at->second;
  if (is_new) of.layout = layout;
  of.micro_batch = std::max(of.micro_batch, layout.micro_batch);
  of.recompute = std::min(of.recompute, layout.recompute);
  if (layout.offload != OffloadKind::kNone) {
    of_host_.try_emplace({layout.tensor, layout.expert}, layout);
  }
}

const LayoutBounds::Class& LayoutBounds::class_of(const RunConfig& layout) const {
  return classes_.at({layout.tensor, layout.context, layout.expert});
}

void LayoutBounds::rehearse_classes() {
  std::vector<Key> keys;
  for (const auto& [key, of] : classes_) {
    const auto& [tensor, context, expert] = key;
    keys.emplace_back(tensor, context, expert, of.micro_batch, of.recompute);
  }
  std::erase_if(keys, [this](const Key& key) { return knows(key); });
  const size_t threads = machines_.kernels.measures() ? 1 : kPlanThreads;
  const auto found = at_once(
      keys, [this](const Key& key) { return rehearse(key); }, threads);
  for (size_t i = 0; i < keys.size(); ++i) learn(keys[i], found[i]);
  std::vector<const RunConfig*> layouts;
  for (const auto& [key, layout] : of_host_) layouts.push_back(&layout);
  const auto seconds = at_once(
      layouts, [this](const RunConfig* of) { return host_seconds(*of); }, threads);
  for (size_t i = 0; i < layouts.size(); ++i) {
    host_s_[{layouts[i]->tensor, layouts[i]->expert}] = seconds[i];
  }
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
  if (!least.is_possible) return {};  // the dry run failed; a smaller micro-batch may still fit
  for (Work* part : {&least.layer, &least.outside}) {
    part->micro_s *= double(layout.micro_batch) / double(of.micro_batch);
    part->activations = 0;
  }
  return bound_of(layout, least);
}

LayoutBound LayoutBounds::fine(const RunConfig& layout) {
  const Rehearsed& found = rehearsed_.at(key_of(layout));
  return found.is_possible ? bound_of(layout, found)
                           : LayoutBound{.likely_seconds = kNever, .likely_bytes = kNever};
}

LayoutBounds::Rehearsed LayoutBounds::rehearse(const Key& key) const {
  const auto& [tensor, context, expert, micro_batch, recompute] = key;
  RunConfig layout = classes_.at({tensor, context, expert}).layout;
  layout.micro_batch = micro_batch;
  layout.recompute = recompute;
  layout.offload = OffloadKind::kNone;
  layout.offload_to = "none";
  const auto work = [&](const std::unique_ptr<Task>& task) -> Work {
    const TimedRank rank = planned(layout, *task, kSteps);
    const RankTime& time = rank.time;
    // Excludes the time in which context-parallel and expert-parallel ranks reduce gradients during
    // backward, because it belongs to data parallelism.
    const double data_s = time.slowed + time.exposed[size_t(comm::Lane::kData)];
    return {.micro_s = time.acting - data_s - time.exposed_host,
            .update_s = std::max(time.total - time.acting - data_s, 0.0),
            .parameters = tagged(rank, MemoryTag::kParameter),
            .gradients = tagged(rank, MemoryTag::kGradient),
            .states = tagged(rank, MemoryTag::kOptimizer),
            .activations = tagged(rank, MemoryTag::kActivation),
            .rest = rest(rank)};
  };
  try {
    if (make_shorter_ == nullptr) {
      return {.is_possible = true, .layer = Work().add(work(make_task_()), 1 / layers_)};
    }
    const Work one = work(make_shorter_(1)), two = work(make_shorter_(2));
    const Work layer = Work(two).add(one, -1);
    return {.is_possible = true, .layer = layer, .outside = Work(one).add(layer, -1)};
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
  if (layout.expert > 1 && adds_statistics) layout.zero = 1;  // this combination requires ZeRO
  const int model_ranks = layout.tensor * layout.context;
  const int data = layout.expert / std::gcd(layout.expert, model_ranks);
  layout.global_batch = layout.micro_batch * data;
  layout.steps = steps;
  layout.eval_every = 0;
  return plan_time(layout, task, 0, model_ranks * data, machines_);
}

double LayoutBounds::host_seconds(const RunConfig& layout) const {
  try {
    const RankTime time = planned(layout, *make_task_(), kSteps).time;
    return std::max({time.to_host, time.from_host, time.on_host});
  } catch (const ConfigError&) {  // the model cannot be split like this
    return 0;
  }
}

const LayoutBounds::Split& LayoutBounds::split_of(const RunConfig& layout) {
  const int chunks = std::max(1, layout.pipeline_chunks);
  Split& split = splits_[{layout.pipeline, chunks}];
  if (!split.cost.empty()) return split;
  split.layers.resize(size_t(layout.pipeline));
  split.cost.resize(size_t(layout.pipeline));
  if (layout.pipeline == 1) return split = {.layers = {layers_}, .cost = {1}};
  double all = 0;
  size_t at = 0, stage = 0;
  for (const int count : comm::split_by_cost(pieces_, layout.pipeline * chunks)) {
    const size_t rank = stage++ % size_t(layout.pipeline);
    for (int i = 0; i < count; ++i, ++at) {
      all += pieces_[at].cost;
      split.cost[rank] += pieces_[at].cost;
      split.layers[rank] += pieces_[at].unit != nullptr;
    }
  }
  for (double& cost : split.cost) cost /= all;
  return split;
}

LayoutBound LayoutBounds::bound_of(const RunConfig& layout, const Rehearsed& of) {
  const Work all = Work(of.outside).add(of.layer, layers_);
  const Sharing sharing = sharing_seconds(layout, all);
  const Split& split = split_of(layout);
  LayoutBound bound{.seconds = least_seconds(layout, all, sharing),
                    .bytes = static_cast<int64_t>(least_bytes(layout, all))};
  bound.likely_seconds = std::max(bound.seconds, likely_seconds(layout, all, sharing, split));
  bound.likely_bytes = std::max(double(bound.bytes), likely_bytes(layout, of, split));
  return bound;
}

double LayoutBounds::sharded(const RunConfig& layout, double bytes, int stage) const {
  return bytes / (layout.zero >= stage ? most_shares(layout) : 1.0);
}

// Returns a lower bound of the memory of the largest pipeline stage: the mean over the stages.
// Excludes what may not exist at the peak: activations if there are several stages, and gradients
// with --zero 2 or 3.
double LayoutBounds::least_bytes(const RunConfig& layout, const Work& all) const {
  double held = sharded(layout, all.states, 1);
  if (layout.offload != OffloadKind::kNone) held = 0;
  if (layout.offload != OffloadKind::kParameters) held += sharded(layout, all.parameters, 3);
  if (layout.zero < 2) held += all.gradients;
  return held / layout.pipeline + (layout.pipeline == 1 ? all.activations : 0);
}

// Returns an estimate of the memory of the rank with the most. Without chunks, rank r of p pipeline
// ranks holds the activations of p - r micro-batches for its layers. With v chunks, it holds those
// of (v - 1) p + 2 (p - r - 1) + 1 micro-batches for one chunk's layers.
double LayoutBounds::likely_bytes(const RunConfig& layout, const Rehearsed& of,
                                  const Split& split) const {
  const double p = layout.pipeline, chunks = std::max(1, layout.pipeline_chunks);
  const double all_chunks = chunks * double(micro_batches(layout, ranks_));
  const auto state_of = [&](const Work& work) {
    double held = layout.offload == OffloadKind::kNone ? sharded(layout, work.states, 1) : 0;
    if (layout.offload != OffloadKind::kParameters) held += sharded(layout, work.parameters, 3);
    if (layout.offload == OffloadKind::kNone || layout.zero < 2) {
      held += sharded(layout, work.gradients, 2);
    }
    return held;
  };
  // With ZeRO-2 and 3 a rank holds the whole gradients of the running layer, with ZeRO-3 also its
  // whole parameters.
  double whole = of.outside.rest;
  if (layout.zero >= 2) whole += of.layer.gradients + of.outside.gradients;
  if (layout.zero == 3) whole += 2 * of.layer.parameters + of.outside.parameters;
  double most = 0;
  for (size_t rank = 0; rank < split.layers.size(); ++rank) {
    const double layers = split.layers[rank], behind = p - 1 - double(rank);
    const double in_flight = chunks == 1 ? behind + 1 : (chunks - 1) * p + 2 * behind + 1;
    double bytes = layers * (state_of(of.layer) + of.layer.rest) +
                   std::min(in_flight, all_chunks) * layers / chunks * of.layer.activations;
    // The embedding is in the first stage, the head in the last.
    const double ends = double(rank == 0) + double(behind == 0);
    bytes += ends / 2 * state_of(of.outside) + (behind == 0 ? of.outside.activations : 0);
    most = std::max(most, bytes);
  }
  return most + whole;
}

double LayoutBounds::least_seconds(const RunConfig& layout, const Work& all,
                                   const Sharing& sharing) const {
  const double micros = double(micro_batches(layout, ranks_)), stages = layout.pipeline;
  const double shared = layout.zero > 0 ? most_shares(layout) : 1;
  // Stage s cannot start before all earlier stages have run forward of the first micro-batch, and
  // they run its backward after stage s. If stage s takes t_s per micro-batch, a step of m
  // micro-batches takes at least t_0 + ... + t_(s-1) + m t_s. The maximum over s is smallest if all
  // t_s are equal. For stages with several chunks only the work counts.
  const double part = layout.pipeline_chunks > 1 || layout.pipeline == 1
                          ? 1 / stages
                          : 1 / (micros * (1 - std::pow(1 - 1 / micros, stages)));
  // The host runs the optimizer step, overlapped with the device.
  const bool offloads = layout.offload != OffloadKind::kNone;
  const double update = offloads ? 0 : all.update_s / stages / shared;
  const double computing = micros * all.micro_s * part + update;
  // With ZeRO-0 and 1, reductions overlap only the last micro-batch and the update, and all-gathers
  // only the update and the first micro-batch. In a pipeline they also overlap the work of other
  // stages.
  const bool is_late = layout.zero <= 1 && layout.pipeline == 1;
  const auto waits = [&](double seconds) {
    return is_late ? std::max(seconds - all.micro_s - update, 0.0) : 0.0;
  };
  const double host_s = offloads ? host_s_.at({layout.tensor, layout.expert}) : 0;
  return std::max({computing + waits(sharing.sums) + waits(sharing.gathers),
                   sharing.sums + sharing.gathers, host_s / stages / shared});
}

double LayoutBounds::likely_seconds(const RunConfig& layout, const Work& all,
                                    const Sharing& sharing, const Split& split) const {
  const double micros = double(micro_batches(layout, ranks_)), stages = layout.pipeline;
  const double shared = layout.zero > 0 ? most_shares(layout) : 1;
  const double slowest = all.micro_s * std::ranges::max(split.cost);
  const double bubble = (stages - 1) / std::max(1, layout.pipeline_chunks) * all.micro_s / stages;
  const double update = layout.offload == OffloadKind::kNone
                            ? all.update_s * std::ranges::max(split.cost) / shared
                            : 0;
  const double host = layout.offload == OffloadKind::kNone
                          ? 0
                          : host_s_.at({layout.tensor, layout.expert}) / stages / shared;
  const double computing = micros * slowest + bubble + update + host;
  const double sums = sharing.sums + sharing.replicas;
  // ZeRO-3 gathers parameters for forward and again for backward.
  const double traffic = sums + (layout.zero == 3 ? 2 : 1) * sharing.gathers;
  if (layout.zero <= 1) {
    const auto waits = [&](double seconds) { return std::max(seconds - slowest - update, 0.0); };
    const double hidden = std::min(traffic, 2 * (slowest + update));
    return computing + waits(sums) + waits(sharing.gathers) +
           machines_.cluster.overlap_tax * hidden;
  }
  // Little of the following overlaps: gathering the first layer, reducing the last layer, and
  // communication of parameters outside of layers.
  const double exposed = traffic / micros * (1 / layers_ + (in_all_ - in_units_) / in_all_ / 2);
  return std::max(computing, traffic) +
         machines_.cluster.overlap_tax * std::min(computing, traffic) + exposed;
}

LayoutBounds::Sharing LayoutBounds::sharing_seconds(const RunConfig& layout,
                                                    const Work& all) const {
  // A shard group has one rank of each tensor group. A tensor group fits in a node, so the shard
  // group has ranks on every node up to the node of its last rank.
  const int64_t ranks = shard_ranks(layout);
  const int64_t last = (ranks - 1) * layout.tensor / machines_.cluster.devices_per_node;
  const GroupSpread group{.ranks = ranks, .nodes = last + 1};
  // Fewer ranks shard expert parameters: only those that hold the same experts.
  const GroupSpread of_experts = expert_group(layout);
  const double experts = layout.expert > 1 ? expert_share(layout) : 0;
  const double stages = layout.pipeline, micros = double(micro_batches(layout, ranks_));
  const auto seconds = [&](comm::CollectiveOp op, double bytes) {
    double sum = bandwidth_seconds(op, (1 - experts) * bytes / stages, group);
    if (experts > 0 && of_experts.ranks > 1) {
      sum += bandwidth_seconds(op, experts * bytes / stages, of_experts);
    }
    return sum;
  };
  const bool is_coded = layout.quantize_gathers != CodedBits::kNone ||
                        layout.quantize_reductions != CodedBits::kNone || gathers_fp8(layout) ||
                        layout.outer_every > 0 || layout.optimizer == OptimizerKind::kOneBitAdam;
  if (is_coded) return {};
  using enum comm::CollectiveOp;
  const double gradients =
      layout.grad_dtype == DType::kF32 ? all.gradients : std::min(all.gradients, all.parameters);
  // Only ZeRO-3 gathers frozen parameters. An element of a frozen parameter has at most as many
  // bytes as one of a trainable parameter, so this is a lower bound.
  const double gathered = layout.zero == 3 ? 1 : in_trained_ / in_all_;
  const double gathers = seconds(kAllGather, gathered * all.parameters);
  const double sums = seconds(kReduceScatterSum, gradients);
  if (layout.zero == 0) return {.sums = 2 * sums};
  const int64_t replicas = parallel_sizes(layout, ranks_).replica;
  const double shard = gradients / stages / double(ranks);
  const double further =
      bandwidth_seconds(kAllReduceSum, shard, {.ranks = replicas, .nodes = replicas});
  if (layout.zero == 1) return {.sums = sums, .gathers = gathers, .replicas = further};
  const bool is_freed = layout.zero == 3 && layout.expert == 1;
  return {.sums = micros * sums,
          .gathers = (is_freed ? micros * in_units_ / in_all_ : 1) * gathers,
          .replicas = micros * further};
}

// Returns the group of the ranks that hold the same experts, which are `layout.expert` ranks apart.
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
  // Lowers the bound if a group with as many ranks was measured to be faster.
  for (const FittedLink& link : machines_.cluster.links) {
    if (link.op != op || link.ranks != group.ranks) continue;
    seconds = std::min(seconds, bytes / link.bandwidth);
  }
  return std::max(seconds, 0.0);
}

double LayoutBounds::most_shares(const RunConfig& layout) const {
  const double shared = double(shard_ranks(layout));
  return layout.expert > 1 ? std::max(shared, shared * layout.tensor / layout.expert) : shared;
}

int64_t LayoutBounds::shard_ranks(const RunConfig& layout) const {
  return int64_t(parallel_sizes(layout, ranks_).shard) * layout.context;
}

}  // namespace shale::models
