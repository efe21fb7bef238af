#include "shale/models/plan/layout_search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/slow_links.h"

namespace shale::models {
namespace {

using MakeTask = std::function<std::unique_ptr<Task>()>;

constexpr int kMostStages = 16;          // of a pipeline, as ranks
constexpr int kMostContext = 16;         // ranks that share a sequence
constexpr int64_t kMostMicroBatch = 64;  // samples
constexpr std::array kChunks{1, 2, 4};   // stages on a rank
constexpr int64_t kMicroBatches = 3;     // that show what one more adds: first, middle, last
constexpr int64_t kSteps = 2;            // in the second there are all states
constexpr size_t kThreads = 2;           // that plan
constexpr size_t kWave = 8;              // plans, before what they found counts for bounds

struct Candidate {
  RunConfig config;
  double least_seconds = 0;  // a bound
  int64_t least_bytes = 0;
};

std::vector<int> divisors(int64_t of, int64_t most) {
  std::vector<int> result;
  for (int64_t i = 1; i <= std::min(of, most); ++i) {
    if (of % i == 0) result.push_back(static_cast<int>(i));
  }
  return result;
}

std::string flags_of(const RunConfig& config) {
  std::string flags;
  const auto add = [&](const char* name, const auto& value) {
    flags += cat(flags.empty() ? "--" : " --", name, " ", value);
  };
  if (config.tensor > 1) add("tensor", config.tensor);
  if (config.context > 1) add("context", config.context);
  if (config.expert > 1) add("expert", config.expert);
  if (config.pipeline > 1) add("pipeline", config.pipeline);
  if (config.pipeline_chunks > 1) add("pipeline-chunks", config.pipeline_chunks);
  if (config.zero > 0) add("zero", config.zero);
  if (config.shard_ranks > 0) add("shard-ranks", config.shard_ranks);
  if (config.recompute == Recompute::kSelective) add("recompute", "selective");
  if (config.recompute == Recompute::kFull) add("recompute", "full");
  add("micro-batch", config.micro_batch);
  return flags;
}

// What a rehearsal of one micro-batch of whole layers' ranks says of all layouts that have it: its
// least time and memory, however it is shared by stages and ranks of data parallelism.
struct MicroBatchBound {
  bool is_possible = false;
  double micro_s = 0, update_s = 0;
  double parameters = 0, gradients = 0, states = 0, activations = 0;  // bytes
  double unit_share = 0;  // of the parameters, that blocks have, which stage 3 gathers and frees
};

// What work gives for each item, on kThreads threads.
template <typename Item, typename Work>
auto at_once(const std::vector<Item>& items, const Work& work) {
  std::vector<decltype(work(items.front()))> results(items.size());
  std::vector<std::exception_ptr> errors(items.size());
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < items.size(); i = next++) {
      try {
        results[i] = work(items[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> others(std::min(kThreads, items.size()) - (items.empty() ? 0 : 1));
  for (std::jthread& other : others) other = std::jthread(run);
  run();
  others.clear();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  return results;
}

class Search {
 public:
  Search(const RunConfig& config, const MakeTask& make_task, int ranks,
         const PlanMachines& machines, const LayoutSearchOptions& options)
      : make_task_(make_task),
        ranks_(ranks),
        machines_(machines),
        options_(options),
        start_(config),
        task_(make_task()),
        pieces_(task_->pieces()),
        experts_(comm::number_of_experts(task_->model())) {
    start_.micro_batches = 0;  // what the global batch leaves
    start_.device_memory = 0;
    start_.shard_ranks = start_.reshard_ranks = 0;
    start_.pipeline_schedule = "auto";
    start_.pipeline_split.clear();
    start_.pipeline_chunks = 0;
    start_.offload = OffloadKind::kNone;
    start_.offload_to = "none";
    start_.memory_profile.clear();
  }

  FoundLayouts run() {
    for (const int tensor : divisors(ranks_, machines_.cluster.devices_per_node)) {
      for (const int context : divisors(ranks_ / tensor, kMostContext)) {
        for (const int pipeline : divisors(ranks_ / tensor / context, kMostStages)) {
          RunConfig config = start_;
          config.tensor = tensor;
          config.context = context;
          config.pipeline = pipeline;
          add_sharded(config);
        }
      }
    }
    if (!options_.exhaustive) find_bounds();
    std::ranges::stable_sort(candidates_, {}, &Candidate::least_seconds);
    // In waves, which are the same whatever thread is faster.
    std::span<const Candidate> rest = candidates_;
    while (!rest.empty()) {
      std::vector<const RunConfig*> next;
      for (; !rest.empty() && next.size() < kWave; rest = rest.subspan(1)) {
        if (may_be_best(rest.front())) next.push_back(&rest.front().config);
      }
      for (std::optional<PlannedLayout>& layout :
           at_once(next, [this](const RunConfig* config) { return plan(*config); })) {
        keep(std::move(layout));
      }
    }
    return std::move(found_);
  }

 private:
  void add_sharded(RunConfig config) {
    const int64_t data = ranks_ / (config.tensor * config.context * config.pipeline);
    if (config.global_batch % data != 0) return;
    const bool is_alone = data * config.context == 1 && (experts_ == 1 || config.tensor == 1);
    const int most_zero = is_alone ? 0 : config.pipeline > 1 ? 1 : 3;
    for (config.zero = 0; config.zero <= most_zero; ++config.zero) {
      for (const int shard : divisors(data, config.zero > 0 ? data : 1)) {
        config.shard_ranks = config.zero > 0 && shard < data ? shard : 0;
        for (const int expert : divisors(experts_, ranks_)) {
          config.expert = expert;
          add_batches(config, config.global_batch / data);
        }
      }
    }
  }

  // samples: of a rank and step
  void add_batches(RunConfig config, int64_t samples) {
    const int64_t given = start_.micro_batch;
    const std::vector<int> sizes = options_.keep_micro_batch
                                       ? std::vector<int>(samples % given == 0, int(given))
                                       : divisors(samples, kMostMicroBatch);
    for (const int chunks : kChunks) {
      if (chunks > 1 && config.pipeline == 1) break;
      if (config.pipeline > 1 && size_t(config.pipeline * chunks) > pieces_.size()) break;
      config.pipeline_chunks = chunks > 1 ? chunks : 0;
      for (const int size : sizes) {
        config.micro_batch = size;
        for (const Recompute level : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          if (options_.keep_recompute && level != start_.recompute) continue;
          config.recompute = level;
          add(config);
        }
      }
    }
  }

  void add(RunConfig config) {
    try {
      resolve(config, ranks_);
    } catch (const ConfigError&) {  // train_lm would not take it
      return;
    }
    ++found_.candidates;
    candidates_.push_back({.config = std::move(config)});
  }

  // One rehearsal for all that share it.
  void find_bounds() {
    using Key = std::tuple<int, int, int, int64_t, Recompute>;
    std::map<Key, MicroBatchBound> bounds;
    const auto key_of = [](const RunConfig& of) {
      return Key(of.tensor, of.context, of.expert, of.micro_batch, of.recompute);
    };
    std::vector<const RunConfig*> firsts;
    for (const Candidate& candidate : candidates_) {
      if (bounds.try_emplace(key_of(candidate.config)).second) {
        firsts.push_back(&candidate.config);
      }
    }
    const auto found = at_once(firsts, [this](const RunConfig* of) { return bound_of(*of); });
    std::map<std::pair<int, int>, double> states;  // by --tensor and --expert
    for (size_t i = 0; i < firsts.size(); ++i) {
      MicroBatchBound& bound = bounds.at(key_of(*firsts[i])) = found[i];
      const auto [at, is_new] = states.try_emplace({firsts[i]->tensor, firsts[i]->expert});
      if (is_new && bound.is_possible) at->second = bytes_of_states(*firsts[i]);
      bound.states = at->second;
    }
    found_.refused = std::erase_if(candidates_, [&](const Candidate& candidate) {
      return !bounds.at(key_of(candidate.config)).is_possible;
    });
    for (Candidate& candidate : candidates_) {
      const MicroBatchBound& bound = bounds.at(key_of(candidate.config));
      candidate.least_bytes = least_bytes(candidate.config, bound);
      candidate.least_seconds = least_seconds(candidate.config, bound);
    }
  }

  // A micro-batch on one stage and one rank of data parallelism, or those that experts are dealt
  // to.
  PlannedRank rehearse(RunConfig config, Task& task, int64_t steps) const {
    config.pipeline = 1;
    config.pipeline_chunks = config.zero = config.shard_ranks = 0;
    const bool adds_statistics =
        config.optimizer == OptimizerKind::kLamb || config.optimizer == OptimizerKind::kAdafactor;
    if (config.expert > 1 && adds_statistics) config.zero = 1;  // which want it then
    const int model_ranks = config.tensor * config.context;
    const int data = config.expert / std::gcd(config.expert, model_ranks);
    config.global_batch = config.micro_batch * data;
    config.steps = steps;
    config.eval_every = 0;
    return plan_rank(config, task, 0, model_ranks * data, &machines_);
  }

  static double tagged(const PlannedRank& rank, MemoryTag tag) {
    return double(rank.memory.device.by_tag[static_cast<size_t>(tag)]);
  }

  double bytes_of_states(const RunConfig& config) const {
    return tagged(rehearse(config, *make_task_(), kSteps), MemoryTag::kOptimizer);
  }

  MicroBatchBound bound_of(const RunConfig& config) const {
    try {
      const std::unique_ptr<Task> task = make_task_();
      const PlannedRank rank = rehearse(config, *task, /*steps=*/1);
      const RankTime& time = rank.time.value();
      // Context ranks, and those of experts, add up gradients beside backward: that is data
      // parallelism's.
      const double data_s = time.slowed + time.exposed[size_t(comm::Lane::kData)];
      return {.is_possible = true,
              .micro_s = time.acting - data_s,
              .update_s = std::max(time.total - time.acting - data_s, 0.0),
              .parameters = tagged(rank, MemoryTag::kParameter),
              .gradients = tagged(rank, MemoryTag::kGradient),
              .activations = tagged(rank, MemoryTag::kActivation),
              .unit_share = unit_share(*task)};
    } catch (const ConfigError&) {  // the model cannot be cut so
      return {};
    }
  }

  static double unit_share(Task& task) {
    double units = 0, all = 0;
    for (Module* unit : task.units()) {
      for (const Parameter* parameter : unit->parameters()) units += double(parameter->numel());
    }
    for (const Parameter* parameter : task.model().parameters()) all += double(parameter->numel());
    return all > 0 ? units / all : 0;
  }

  // The largest stage has the mean of all at least.
  int64_t least_bytes(const RunConfig& config, const MicroBatchBound& bound) const {
    const double shared = most_shares(config), stages = config.pipeline;
    const auto of = [&](double bytes, int stage) {
      return bytes / stages / (config.zero >= stage ? shared : 1.0);
    };
    const double held = of(bound.parameters, 3) + of(bound.gradients, 2) + of(bound.states, 1);
    return static_cast<int64_t>(held + (config.pipeline == 1 ? bound.activations : 0));
  }

  double least_seconds(const RunConfig& config, const MicroBatchBound& bound) const {
    const double micros = double(micro_batches(config)), stages = config.pipeline;
    const double shared = config.zero > 0 ? most_shares(config) : 1;
    // A stage waits for its first micro-batch until the stages before it have been forward with it,
    // and these go backward after it: with t of stage s what it takes for a micro-batch, a step
    // takes t_0 + ... + t_(s-1) + m t_s at least, for all s; the largest of these is least where
    // all are equal. Of stages with several chunks only the work counts.
    const double part = config.pipeline_chunks > 1 || config.pipeline == 1
                            ? 1 / stages
                            : 1 / (micros * (1 - std::pow(1 - 1 / micros, stages)));
    const double computing = micros * bound.micro_s * part + bound.update_s / stages / shared;
    return std::max(computing, sharing_seconds(config, bound));
  }

  // What data parallelism's lane carries at least.
  double sharing_seconds(const RunConfig& config, const MicroBatchBound& bound) const {
    // One rank in --tensor, which is at most a node, so that they are on every node up to the last.
    const int64_t ranks = shard_ranks_of(config);
    const int64_t last = (ranks - 1) * config.tensor / machines_.cluster.devices_per_node;
    const GroupSpread group{.ranks = ranks, .nodes = last + 1};
    const double stages = config.pipeline, micros = double(micro_batches(config));
    const auto seconds = [&](comm::CollectiveOp op, double bytes) {
      return bandwidth_seconds(op, bytes / stages, group);
    };
    const bool is_coded = config.quantize_gathers != CodedBits::kNone ||
                          config.quantize_reductions != CodedBits::kNone ||
                          config.grad_dtype != DType::kF32 || config.outer_every > 0 ||
                          one_bit_name(config.optimizer) != nullptr;
    // Gradients of experts are added over fewer ranks: how many bytes they are is not known here.
    if (is_coded || ranks == 1 || config.expert > 1) return 0;
    using enum comm::CollectiveOp;
    const double gathers = seconds(kAllGather, bound.parameters);
    const double sums = seconds(kReduceScatterSum, bound.gradients);
    if (config.zero == 0) return 2 * sums;
    if (config.zero == 1) return sums + gathers;
    const bool is_freed = config.zero == 3 && config.persist_below == 0 &&
                          config.reshard != comm::ReshardAfterForward::kNo;
    return micros * sums + (is_freed ? micros * bound.unit_share : 1) * gathers;
  }

  double bandwidth_seconds(comm::CollectiveOp op, double bytes, const GroupSpread& group) const {
    Cluster cluster = machines_.cluster;
    cluster.node.latency_s = cluster.network.latency_s = 0;
    char memory = 0;
    const View whole = make_view(&memory, DType::kF32, {static_cast<int64_t>(bytes / 4)});
    return collective_seconds(cluster, {.op = op, .in = whole, .out = whole}, group);
  }

  bool may_be_best(const Candidate& candidate) {
    if (options_.most_bytes > 0 && candidate.least_bytes > options_.most_bytes) {
      ++found_.too_large;
      return false;
    }
    const std::vector<PlannedLayout>& best = found_.best;
    if (options_.exhaustive || best.size() < options_.top ||
        candidate.least_seconds < best.back().step->seconds) {
      return true;
    }
    ++found_.slower;
    return false;
  }

  void keep(std::optional<PlannedLayout> layout) {
    if (!layout) {
      ++found_.refused;
      return;
    }
    ++found_.planned;
    if (options_.most_bytes > 0 && layout->device.reserved > options_.most_bytes) {
      ++found_.too_large;
      return;
    }
    const auto is_faster = [](const PlannedLayout& a, const PlannedLayout& b) {
      return a.step->seconds < b.step->seconds;
    };
    std::vector<PlannedLayout>& best = found_.best;
    best.insert(std::ranges::upper_bound(best, *layout, is_faster), std::move(*layout));
    if (best.size() > options_.top) best.pop_back();
  }

  // Nothing: the model cannot be cut so.
  std::optional<PlannedLayout> plan(const RunConfig& config) const {
    const int64_t all = micro_batches(config);
    const int64_t few = std::min(all, std::max<int64_t>(kMicroBatches, 2 * config.pipeline));
    RunConfig shorter = config;
    shorter.global_batch = config.global_batch / all * few;
    shorter.steps = kSteps;
    try {
      std::vector<PlannedRank> stages = plan_stages(shorter, few);
      PlannedLayout layout{.flags = flags_of(config), .config = config};
      for (PlannedRank& stage : stages) {
        if (few < all) stage.time = with_micro_batches(std::move(*stage.time), few, all);
        if (stage.memory.device.reserved > layout.device.reserved) {
          layout.device = stage.memory.device;
        }
      }
      layout.step = planned_step(config, task_->unit(), machines_.cluster, stages, ranks_);
      return layout;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  // Stages that have equal pieces and links have equal steps; the first of them holds most, as it
  // is ahead of its micro-batches' backward by most.
  std::vector<PlannedRank> plan_stages(const RunConfig& config, int64_t micro_batches) const {
    std::map<std::vector<double>, PlannedRank> planned;
    std::vector<PlannedRank> stages;
    for (const int rank : first_ranks_of_stages(config, ranks_)) {
      const std::vector<double> work =
          config.pipeline > 1 ? work_of_stage(config, micro_batches, rank, int(stages.size()))
                              : std::vector<double>();
      auto found = planned.find(work);
      if (found == planned.end()) {
        const std::unique_ptr<Task> task = make_task_();
        found = planned.emplace(work, plan_rank(config, *task, rank, ranks_, &machines_)).first;
      }
      stages.push_back(found->second);
    }
    return stages;
  }

  // What tells a stage from others: by chunk its pieces' costs, which of them are the model's first
  // and last, and its place in a node.
  std::vector<double> work_of_stage(const RunConfig& config, int64_t micro_batches, int rank,
                                    int stage) const {
    const comm::StagePlan plan =
        comm::make_stage_plan(pieces_, pipeline_schedule(config, micro_batches));
    std::vector<double> work{double(rank % machines_.cluster.devices_per_node)};
    for (int chunk = 0; chunk < plan.placement().chunks; ++chunk) {
      const auto [first, end] = plan.pieces_of(stage, chunk);
      work.insert(work.end(), {-1, double(first == 0), double(size_t(end) == pieces_.size())});
      for (int i = first; i < end; ++i) work.push_back(pieces_[size_t(i)].cost);
    }
    return work;
  }

  int64_t micro_batches(const RunConfig& config) const {
    const comm::ParallelSizes sizes = parallel_sizes(config, ranks_);
    return batch_layout(config, int64_t(sizes.replica) * sizes.shard).micro_batches(0);
  }

  // Ranks over which --zero divides a parameter at most: an expert's are tensor ranks too.
  double most_shares(const RunConfig& config) const {
    const double shared = double(shard_ranks_of(config));
    return config.expert > 1 ? std::max(shared, shared * config.tensor / config.expert) : shared;
  }

  int64_t shard_ranks_of(const RunConfig& config) const {
    return int64_t(parallel_sizes(config, ranks_).shard) * config.context;
  }

  const MakeTask& make_task_;
  const int ranks_;
  const PlanMachines& machines_;
  const LayoutSearchOptions& options_;
  RunConfig start_;
  const std::unique_ptr<Task> task_;
  const std::vector<nn::Piece> pieces_;
  const int64_t experts_;  // of a mixture; 1: the model has none
  std::vector<Candidate> candidates_;
  FoundLayouts found_;
};

}  // namespace

FoundLayouts search_layouts(const RunConfig& config, const MakeTask& make_task, int ranks,
                            const PlanMachines& machines, const LayoutSearchOptions& options) {
  return Search(config, make_task, ranks, machines, options).run();
}

}  // namespace shale::models
