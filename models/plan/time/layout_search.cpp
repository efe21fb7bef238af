#include "shale/models/plan/time/layout_search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/models/plan/time/at_once.h"
#include "shale/models/plan/time/layout_bounds.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;
using MakeTask = std::function<std::unique_ptr<Task>()>;

constexpr int kMostStages = 16;          // maximum pipeline ranks
constexpr int kMostContext = 16;         // maximum context-parallel ranks
constexpr int64_t kMostMicroBatch = 64;  // maximum samples per micro-batch
constexpr std::array kChunks{1, 2, 4};   // chunks per pipeline rank
struct OffloadChoice {
  OffloadKind kind;
  const char* flag;  // value of --offload
};
constexpr std::array<OffloadChoice, 3> kOffloads{{{OffloadKind::kNone, "none"},
                                                  {OffloadKind::kOptimizer, "optimizer"},
                                                  {OffloadKind::kParameters, "params"}}};
constexpr int64_t kMicroBatches = 3;  // the time of the middle one stands for each further one
constexpr int64_t kSteps = 2;         // all optimizer states exist in the second step
constexpr double kLast = 1e9;         // expected time in seconds that sorts a layout last
constexpr size_t kWave = 8;           // plans made between two updates of the expected times

struct Candidate {
  RunConfig config;
  LayoutBound bound;
  bool is_fine = false;  // true: a fine bound; false: a coarse bound
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
  if (config.offload != OffloadKind::kNone) add("offload", config.offload_to);
  if (config.recompute == Recompute::kSelective) add("recompute", "selective");
  if (config.recompute == Recompute::kFull) add("recompute", "full");
  add("micro-batch", config.micro_batch);
  return flags;
}

class Search {
 public:
  Search(const RunConfig& config, const MakeTask& make_task, int ranks,
         const PlanMachines& machines, const LayoutSearchOptions& options)
      : make_task_(make_task),
        ranks_(ranks),
        machines_{machines.cluster, machines.kernels, /*lists_memory=*/false},
        options_(options),
        start_(config),
        task_(make_task()),
        pieces_(task_->pieces()),
        experts_(comm::number_of_experts(task_->model())),
        knows_host_(machines.cluster.is_gpu && machines.cluster.host_bandwidth > 0 &&
                    machines.cluster.host_memory_bandwidth > 0),
        bounds_(make_task, ranks, machines) {
    start_.ranks_per_process = 1;
    start_.device_memory = 0;
    start_.shard_ranks = start_.reshard_ranks = 0;
    start_.pipeline_schedule.reset();
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
    if (!options_.exhaustive) {
      for (const Candidate& candidate : candidates_) bounds_.add(candidate.config);
      for (Candidate& candidate : candidates_) candidate.bound = bounds_.coarse(candidate.config);
    }
    for (size_t i = 0; i < candidates_.size(); ++i) enqueue(i);
    // Waves make the result independent of thread timing.
    for (Wave wave = next_wave(); !wave.empty(); wave = next_wave()) {
      run(wave);
      if (is_late()) break;
    }
    count_rest();
    return std::move(found_);
  }

 private:
  bool is_late() const {
    const std::chrono::duration<double> taken = Clock::now() - begin_;
    return options_.most_seconds > 0 && taken.count() > options_.most_seconds;
  }
  // Counts the candidates that are still in the queue.
  void count_rest() {
    for (const auto& [expected, index] : queue_) {
      const RunConfig& config = candidates_[index].config;
      if (bounds_.knows(LayoutBounds::key_of(config))) {
        candidates_[index].bound = bounds_.fine(config);
      }
      if (!may_be_best(candidates_[index])) continue;
      const double seconds = candidates_[index].bound.seconds;
      if (found_.left++ == 0 || seconds < found_.least_seconds) found_.least_seconds = seconds;
    }
  }

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
          for (const OffloadChoice& offload : kOffloads) {
            if (offload.kind != OffloadKind::kNone && !knows_host_) continue;
            if (offload.kind == OffloadKind::kParameters && config.zero < 3) continue;
            config.offload_to = offload.flag;
            add_batches(config, config.global_batch / data);
          }
        }
      }
    }
  }

  // `samples`: number of samples of one rank in one step.
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
    } catch (const ConfigError& error) {  // train_lm does not accept it
      if (found_.refusal.empty()) found_.refusal = error.what();
      return;
    }
    ++found_.candidates;
    candidates_.push_back({.config = std::move(config)});
  }

  // Work that runs concurrently: dry runs for bounds, and plans.
  struct Wave {
    std::vector<LayoutBounds::Key> keys;
    std::vector<const Candidate*> plans;
    std::vector<size_t> waiting;  // candidates that need these dry runs
    bool empty() const { return keys.empty() && plans.empty(); }
    size_t size() const { return keys.size() + plans.size(); }
  };

  // Plan of a layout, or the error with which the run's own parts refuse it.
  struct Outcome {
    std::optional<PlannedLayout> layout = {};
    std::string refusal = {};
  };

  // Order of evaluation. Layouts that probably do not fit the device come last, so that a search
  // that ends early has found one that fits; until one is found, the smallest layouts come first.
  // All others are sorted by expected time: the bound times the ratio of plan to bound, from plans
  // with the same number of ranks along each axis, or else the best ratio of all. Only bounds
  // exclude layouts.
  using Ratio = std::tuple<int, int, int, int>;
  static Ratio ratio_of(const RunConfig& config) {
    return {config.tensor, config.context, config.expert, config.pipeline};
  }
  double expected(const Candidate& candidate) const {
    const auto found = ratios_.find(ratio_of(candidate.config));
    const double seconds =
        candidate.bound.seconds * (found == ratios_.end() ? least_ratio_ : found->second);
    if (probably_fits(candidate)) return seconds;
    return kLast + (found_.best.empty() ? likely_bytes(candidate) : seconds);
  }
  // Estimated memory, plus the least excess over the estimate among plans with the same
  // activations.
  double likely_bytes(const Candidate& candidate) const {
    const auto found = least_excess_.find(LayoutBounds::key_of(candidate.config));
    return candidate.bound.likely_bytes + (found == least_excess_.end() ? 0 : found->second);
  }
  bool probably_fits(const Candidate& candidate) const {
    return options_.most_bytes == 0 || likely_bytes(candidate) <= double(options_.most_bytes);
  }
  void enqueue(size_t index) { queue_.emplace(expected(candidates_[index]), index); }

  // Takes the candidates with the least expected time. Candidates that may be among the best by
  // their coarse bound get a fine bound, and are planned if they still may be. Returns an empty
  // wave at the limit of dry runs.
  Wave next_wave() {
    Wave wave;
    const size_t most = options_.most_dry_runs == 0
                            ? kWave
                            : std::min(kWave, size_t(options_.most_dry_runs - found_.dry_runs));
    // Until a layout fits, half of each wave is for plans, so that fine bounds do not use all of
    // it.
    const size_t most_keys = found_.best.empty() ? (most + 1) / 2 : most;
    while (!queue_.empty() && wave.size() < most) {
      const auto [before, index] = queue_.extract(queue_.begin()).value();
      Candidate& candidate = candidates_[index];
      if (expected(candidate) > before) {  // later plans raised the expectation
        enqueue(index);
        continue;
      }
      if (wave.keys.size() == most_keys && !probably_fits(candidate)) {
        enqueue(index);
        break;
      }
      if (!may_be_best(candidate)) continue;
      if (candidate.is_fine || options_.exhaustive) {
        wave.plans.push_back(&candidate);
        continue;
      }
      const LayoutBounds::Key key = LayoutBounds::key_of(candidate.config);
      if (!bounds_.knows(key)) {
        const bool is_new = std::ranges::find(wave.keys, key) == wave.keys.end();
        if (is_new && wave.keys.size() < most_keys) wave.keys.push_back(key);
        wave.waiting.push_back(index);
        continue;
      }
      candidate.bound = bounds_.fine(candidate.config);
      candidate.is_fine = true;
      enqueue(index);
    }
    return wave;
  }

  void run(const Wave& wave) {
    std::vector<std::function<void()>> work;
    std::vector<LayoutBounds::Rehearsed> rehearsed(wave.keys.size());
    std::vector<Outcome> planned(wave.plans.size());
    for (size_t i = 0; i < wave.keys.size(); ++i) {
      work.emplace_back([&, i] { rehearsed[i] = bounds_.rehearse(wave.keys[i]); });
    }
    for (size_t i = 0; i < wave.plans.size(); ++i) {
      work.emplace_back([&, i] { planned[i] = plan(wave.plans[i]->config); });
    }
    at_once(work, [](const std::function<void()>& one) {
      one();
      return 0;
    });
    found_.dry_runs += std::ssize(work);
    const bool found_none = found_.best.empty();
    for (size_t i = 0; i < wave.keys.size(); ++i) bounds_.learn(wave.keys[i], rehearsed[i]);
    for (size_t i = 0; i < planned.size(); ++i) {
      if (planned[i].layout) learn(*wave.plans[i], *planned[i].layout);
      keep(std::move(planned[i]));
    }
    for (const size_t i : wave.waiting) enqueue(i);
    if (found_none && !found_.best.empty()) {  // a found layout changes the order
      for (const auto& [before, index] : std::exchange(queue_, {})) enqueue(index);
    }
  }

  void learn(const Candidate& candidate, const PlannedLayout& planned) {
    if (candidate.bound.seconds <= 0) return;
    const double excess = double(planned.device.reserved) - candidate.bound.likely_bytes;
    const LayoutBounds::Key key = LayoutBounds::key_of(candidate.config);
    double& least = least_excess_.try_emplace(key, excess).first->second;
    least = std::min(least, excess);
    const double ratio = planned.step->seconds / candidate.bound.seconds;
    const auto [at, is_new] = ratios_.try_emplace(ratio_of(candidate.config), ratio);
    at->second = std::min(at->second, ratio);
    least_ratio_ = ratios_.size() == 1 ? ratio : std::min(least_ratio_, ratio);
  }

  bool may_be_best(const Candidate& candidate) {
    if (options_.most_bytes > 0 && candidate.bound.bytes > options_.most_bytes) {
      ++found_.too_large;
      return false;
    }
    const std::vector<PlannedLayout>& best = found_.best;
    if (options_.exhaustive || best.size() < options_.top ||
        candidate.bound.seconds < best.back().step->seconds) {
      return true;
    }
    ++found_.slower;
    return false;
  }

  void keep(Outcome outcome) {
    std::optional<PlannedLayout>& layout = outcome.layout;
    if (!layout) {
      if (found_.refused++ == 0) found_.refusal = outcome.refusal;
      return;
    }
    ++found_.planned;
    const double beside = double(std::min<int64_t>(ranks_, machines_.cluster.devices_per_node));
    const double most_host = machines_.cluster.host_memory / beside;
    if ((options_.most_bytes > 0 && layout->device.reserved > options_.most_bytes) ||
        (most_host > 0 && double(layout->host_bytes) > most_host)) {
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

  Outcome plan(const RunConfig& config) const {
    const int64_t all = micro_batches(config);
    const int64_t few = std::min(all, std::max<int64_t>(kMicroBatches, 2 * config.pipeline));
    RunConfig shorter = config;
    shorter.global_batch = config.global_batch / all * few;
    shorter.steps = kSteps;
    try {
      std::vector<TimedRank> stages = plan_stages(shorter, few);
      PlannedLayout layout{.flags = flags_of(config), .config = config};
      for (TimedRank& stage : stages) {
        if (few < all) stage.time = with_micro_batches(std::move(stage.time), few, all);
        if (stage.memory.device.reserved > layout.device.reserved) {
          layout.device = stage.memory.device;
        }
        if (stage.memory.host) {
          layout.host_bytes = std::max(layout.host_bytes, stage.memory.host->reserved);
        }
      }
      layout.step = planned_step(config, task_->unit(), machines_.cluster, stages, ranks_);
      return {.layout = std::move(layout)};
    } catch (const ConfigError& error) {
      return {.refusal = error.what()};
    }
  }

  // Stages with equal pieces and equal links have equal steps. Only the first of them is planned:
  // it holds most, as its forward is furthest ahead of its backward.
  std::vector<TimedRank> plan_stages(const RunConfig& config, int64_t micro_batches) const {
    std::map<std::vector<double>, TimedRank> planned;
    std::vector<TimedRank> stages;
    for (const int rank : first_ranks_of_stages(config, ranks_)) {
      const std::vector<double> work =
          config.pipeline > 1 ? work_of_stage(config, micro_batches, rank, int(stages.size()))
                              : std::vector<double>();
      auto found = planned.find(work);
      if (found == planned.end()) {
        const std::unique_ptr<Task> task = make_task_();
        found = planned.emplace(work, plan_time(config, *task, rank, ranks_, machines_)).first;
      }
      stages.push_back(found->second);
    }
    return stages;
  }

  // Placement of the ranks of the stage that begins with `rank`, as far as stages differ in it. If
  // the stages and their replicas are aligned with nodes, only this matters: whether the neighbour
  // stages are in the same node.
  std::vector<double> place_of_stage(const RunConfig& config, int rank) const {
    const comm::ParallelSizes sizes = parallel_sizes(config, ranks_);
    const int of_node = int(machines_.cluster.devices_per_node);
    const int of_stage = sizes.shard * sizes.context * sizes.tensor;
    const int of_replica = of_stage * sizes.pipeline;
    const auto fits = [&](int count) { return count % of_node == 0 || of_node % count == 0; };
    const bool is_aligned = fits(of_stage) && (sizes.replica == 1 || fits(of_replica));
    const auto is_beside = [&](int other) { return double(other / of_node == rank / of_node); };
    return {is_aligned ? -1.0 : double(rank % of_node), is_beside(rank + of_stage),
            rank < of_stage ? 0.0 : is_beside(rank - of_stage)};
  }

  // Key of stages with equal work: the placement, and by chunk the costs of its pieces and whether
  // it has the model's first and last piece.
  std::vector<double> work_of_stage(const RunConfig& config, int64_t micro_batches, int rank,
                                    int stage) const {
    const comm::StagePlan plan =
        comm::make_stage_plan(pieces_, pipeline_schedule(config, micro_batches));
    std::vector<double> work = place_of_stage(config, rank);
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

  const Clock::time_point begin_ = Clock::now();
  const MakeTask& make_task_;
  const int ranks_;
  const PlanMachines machines_;
  const LayoutSearchOptions& options_;
  RunConfig start_;
  const std::unique_ptr<Task> task_;
  const std::vector<nn::Piece> pieces_;
  const int64_t experts_;  // experts of an MoE model; 1: not an MoE model
  const bool knows_host_;  // true: plans include the time of --offload (a CPU is its own host)
  LayoutBounds bounds_;
  std::vector<Candidate> candidates_;
  std::set<std::pair<double, size_t>> queue_;  // sorted by expected time; indices of candidates
  std::map<Ratio, double> ratios_;  // by axis sizes, least ratio of planned time to bound
  double least_ratio_ = 1;
  std::map<LayoutBounds::Key, double> least_excess_;  // in bytes
  FoundLayouts found_;
};

}  // namespace

FoundLayouts search_layouts(const RunConfig& config, const MakeTask& make_task, int ranks,
                            const PlanMachines& machines, const LayoutSearchOptions& options) {
  return Search(config, make_task, ranks, machines, options).run();
}

void check_found(const FoundLayouts& found, const LayoutSearchOptions& options,
                 std::string_view caller, std::string_view remedy) {
  if (!found.best.empty()) return;
  if (found.left > 0) {
    throw IncompleteSearchError(cat(caller,
                                    ": found no layout that fits before the search's limit; ",
                                    describe_left(found), "; ", remedy));
  }
  if (found.too_large == 0) {
    throw ConfigError(
        cat(caller, ": none of ", found.candidates, " layouts is possible: ", found.refusal));
  }
  throw OutOfMemoryError(cat(
      caller, ": none of ", found.candidates, " layouts fits in ",
      format_bytes(double(options.most_bytes)),
      " per rank, with --tensor up to a node and --context and --pipeline up to ", kMostStages));
}

std::string describe_left(const FoundLayouts& found) {
  if (found.left == 0) return {};
  return cat(found.left, " of ", found.candidates, " layouts were not evaluated");
}

}  // namespace shale::models
