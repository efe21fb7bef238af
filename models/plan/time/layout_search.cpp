#include "shale/models/plan/time/layout_search.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

constexpr int kMostStages = 64;          // maximum pipeline ranks
constexpr int kMostContext = 16;         // maximum context-parallel ranks
constexpr int64_t kMostMicroBatch = 64;  // maximum samples per micro-batch
struct OffloadChoice {
  OffloadKind kind;
  const char* flag;  // value of --offload
};
constexpr std::array<OffloadChoice, 3> kOffloads{{{OffloadKind::kNone, "none"},
                                                  {OffloadKind::kOptimizer, "optimizer"},
                                                  {OffloadKind::kParameters, "params"}}};
constexpr double kLast = 1e9;  // expected time in seconds of layouts to plan last
constexpr size_t kWave = 8;    // number of plans between two updates of the expected times

struct Candidate {
  RunConfig config;
  LayoutBound bound;
  bool is_fine = false;  // true: `bound` is a fine bound; false: a coarse bound
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
        machines_{machines.cluster, machines.kernels, /*lists_memory=*/false, /*threads=*/1},
        options_(options),
        start_(config),
        task_(make_task()),
        pieces_(task_->pieces()),
        experts_(comm::number_of_experts(task_->model())),
        knows_host_(machines.cluster.is_gpu && machines.cluster.host_bandwidth > 0 &&
                    machines.cluster.host_memory_bandwidth > 0),
        bounds_(make_task, options.make_shorter, ranks, machines) {
    start_.ranks_per_process = 1;
    start_.device_memory = 0;
    start_.shard_ranks = start_.reshard_ranks = 0;
    start_.pipeline_schedule.reset();
    start_.pipeline_chunks = 0;
    start_.offload = OffloadKind::kNone;
    start_.offload_to = "none";
    start_.trace.clear();
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
    // Results are used after a whole wave, so they do not depend on the timing of threads.
    for (Wave wave = next_wave(); !wave.empty(); wave = next_wave()) {
      run(wave);
      if (options_.progress != nullptr) options_.progress(found_);
    }
    count_rest();
    return std::move(found_);
  }

 private:
  // Counts the candidates that are still in the queue.
  void count_rest() {
    for (const auto& [expected, index] : queue_) {
      const RunConfig& config = candidates_[index].config;
      if (bounds_.knows(LayoutBounds::key_of(config))) {
        candidates_[index].bound = bounds_.fine(config);
      }
      if (!may_be_best(candidates_[index])) continue;
      const LayoutBound& bound = candidates_[index].bound;
      const auto lower = [&](double& least, double seconds) {
        least = found_.left == 0 ? seconds : std::min(least, seconds);
      };
      lower(found_.least_seconds, bound.seconds);
      lower(found_.likely_seconds, bound.likely_seconds);
      ++found_.left;
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

  // samples: number of samples per data-parallel rank in a step.
  void add_batches(RunConfig config, int64_t samples) {
    const int64_t given = start_.micro_batch;
    const std::vector<int> sizes = options_.keep_micro_batch
                                       ? std::vector<int>(samples % given == 0, int(given))
                                       : divisors(samples, kMostMicroBatch);
    for (const int chunks : chunks_of(config.pipeline)) {
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

  // Returns numbers of chunks per pipeline rank: powers of two, and the largest number for which
  // every chunk has a piece.
  std::vector<int> chunks_of(int pipeline) const {
    if (pipeline == 1) return {1};
    const int most = int(pieces_.size()) / pipeline;
    std::vector<int> result;
    for (int chunks = 1; chunks < most; chunks *= 2) result.push_back(chunks);
    if (most > 0) result.push_back(most);
    return result;
  }

  void add(RunConfig config) {
    try {
      resolve(config, ranks_);
      if (options_.check != nullptr) options_.check(config);
    } catch (const ConfigError& error) {  // train_lm rejects this layout
      if (found_.refusal.empty()) found_.refusal = error.what();
      return;
    }
    ++found_.candidates;
    candidates_.push_back({.config = std::move(config)});
  }

  // Dry runs for bounds, and plans, which run at the same time.
  struct Wave {
    std::vector<LayoutBounds::Key> keys;
    std::vector<const Candidate*> plans;
    std::vector<size_t> waiting;  // candidates whose fine bound needs the dry runs of `keys`
    bool empty() const { return keys.empty() && plans.empty(); }
    size_t size() const { return keys.size() + plans.size(); }
  };

  // Plan of a layout, or the error with which a part of the run rejects the layout.
  struct Outcome {
    std::optional<PlannedLayout> layout = {};
    std::string refusal = {};
  };

  // expected() determines the order in which layouts are planned, but excludes none:
  // - first the best layout of each usual kind
  // - then all others, by expected time
  // - last those that probably do not fit the device, so that a search that ends early has found a
  //   layout that fits; until one is found, the smallest come first
  //
  // The expected time is the estimate times the ratio of planned to estimated time. This ratio is
  // the least among plans with the same Ratio key (axis sizes, ZeRO stage and offload) or, without
  // such a plan, among all plans.
  using Ratio = std::tuple<int, int, int, int, int, OffloadKind>;
  static Ratio ratio_of(const RunConfig& config) {
    return {config.tensor,   config.context, config.expert,
            config.pipeline, config.zero,    config.offload};
  }
  double expected(const Candidate& candidate) const {
    const auto found = ratios_.find(ratio_of(candidate.config));
    const double seconds =
        candidate.bound.likely_seconds * (found == ratios_.end() ? least_ratio_ : found->second);
    if (!probably_fits(candidate)) {
      return kLast + (found_.best.empty() ? likely_bytes(candidate) : seconds);
    }
    return is_usual(candidate.config) && !tried_.contains(kind_of(candidate.config))
               ? seconds - kLast
               : seconds;
  }
  // Returns true for layouts that most published runs use, with no or selective recomputation:
  // ZeRO-3 alone; pipelines with ZeRO-1, with or without tensor parallelism within a node. MoE
  // models may have expert parallelism in addition.
  bool is_usual(const RunConfig& config) const {
    const bool has_pipeline = config.pipeline > 1;
    return config.context == 1 && config.shard_ranks == 0 && config.offload == OffloadKind::kNone &&
           config.recompute != Recompute::kFull && config.zero == (has_pipeline ? 1 : 3) &&
           (config.tensor == 1 ||
            (has_pipeline && config.tensor == machines_.cluster.devices_per_node));
  }
  using Kind = std::tuple<bool, bool, bool, Recompute>;
  static Kind kind_of(const RunConfig& config) {
    return {config.tensor > 1, config.pipeline > 1, config.expert > 1, config.recompute};
  }
  // Returns the estimated memory, corrected by the least difference between planned and estimated
  // memory among plans with the same activations.
  double likely_bytes(const Candidate& candidate) const {
    const auto found = least_excess_.find(LayoutBounds::key_of(candidate.config));
    return candidate.bound.likely_bytes + (found == least_excess_.end() ? 0 : found->second);
  }
  bool probably_fits(const Candidate& candidate) const {
    return options_.most_bytes == 0 || likely_bytes(candidate) <= double(options_.most_bytes);
  }
  void enqueue(size_t index) { queue_.emplace(expected(candidates_[index]), index); }

  // Takes candidates with the least expected time from the queue. A candidate whose coarse bound
  // allows it to be among the best gets a fine bound. If this bound allows it too, the candidate is
  // planned. Returns an empty wave when as many layouts are planned as options allow.
  Wave next_wave() {
    Wave wave;
    const auto nodes = options_.most_nodes == 0 ? kWave : size_t(options_.most_nodes - nodes_);
    while (!queue_.empty() && wave.size() < kWave && wave.plans.size() < nodes) {
      const auto [before, index] = queue_.extract(queue_.begin()).value();
      Candidate& candidate = candidates_[index];
      if (expected(candidate) > before) {  // later plans have raised its expected time
        enqueue(index);
        continue;
      }
      if (!may_be_best(candidate)) continue;
      if (candidate.is_fine || options_.exhaustive) {
        if (is_usual(candidate.config)) tried_.insert(kind_of(candidate.config));
        wave.plans.push_back(&candidate);
        continue;
      }
      const LayoutBounds::Key key = LayoutBounds::key_of(candidate.config);
      if (!bounds_.knows(key)) {
        const bool is_new = std::ranges::find(wave.keys, key) == wave.keys.end();
        if (is_new) wave.keys.push_back(key);
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
    const auto run_one = [](const std::function<void()>& one) {
      one();
      return 0;
    };
    at_once(work, run_one, machines_.kernels.measures() ? 1 : kPlanThreads);
    nodes_ += std::ssize(wave.plans);
    const bool found_none = found_.best.empty();
    for (size_t i = 0; i < wave.keys.size(); ++i) bounds_.learn(wave.keys[i], rehearsed[i]);
    for (size_t i = 0; i < planned.size(); ++i) {
      if (planned[i].layout) learn(*wave.plans[i], *planned[i].layout);
      keep(std::move(planned[i]));
    }
    for (const size_t i : wave.waiting) enqueue(i);
    if (found_none && !found_.best.empty()) {  // the first found layout changes the order
      for (const auto& [before, index] : std::exchange(queue_, {})) enqueue(index);
    }
  }

  void learn(const Candidate& candidate, const PlannedLayout& planned) {
    if (candidate.bound.likely_seconds <= 0) return;
    const double excess = double(planned.device.reserved) - candidate.bound.likely_bytes;
    const LayoutBounds::Key key = LayoutBounds::key_of(candidate.config);
    double& least = least_excess_.try_emplace(key, excess).first->second;
    least = std::min(least, excess);
    const double ratio = planned.step->seconds / candidate.bound.likely_seconds;
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
    try {
      const std::vector<TimedRank> stages = plan_stages(config, make_task_, ranks_, &machines_);
      PlannedLayout layout{.flags = flags_of(config), .config = config};
      for (const TimedRank& stage : stages) {
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

  const MakeTask& make_task_;
  const int ranks_;
  const PlanMachines machines_;
  const LayoutSearchOptions& options_;
  RunConfig start_;
  const std::unique_ptr<Task> task_;
  const std::vector<nn::Piece> pieces_;
  const int64_t experts_;  // number of experts; 1: not an MoE model
  // Plans include the time of --offload; always true on a CPU, its own host.
  const bool knows_host_;
  LayoutBounds bounds_;
  std::vector<Candidate> candidates_;
  std::set<std::pair<double, size_t>> queue_;  // expected time, and index of the candidate
  // Least planned time / estimated time, by axis sizes, ZeRO stage and offload.
  std::map<Ratio, double> ratios_;
  double least_ratio_ = 1;
  std::set<Kind> tried_;  // usual kinds that have a plan
  int64_t nodes_ = 0;     // number of layouts planned, also without success
  std::map<LayoutBounds::Key, double> least_excess_;  // least planned minus estimated bytes
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
      " per rank, with --tensor up to a node, --context up to ", kMostContext,
      " and --pipeline up to ", kMostStages));
}

std::string describe_left(const FoundLayouts& found) {
  if (found.left == 0) return {};
  return cat(found.left, " of ", found.candidates, " layouts were not evaluated");
}

}  // namespace shale::models
