// shale plan: memory and time that a run would need, rank by rank, without its machines.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/clock.h"
#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/text.h"
#include "shale/comm/world.h"
#include "shale/models/language/compatibility.h"
#include "shale/models/language/config.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/plan/time/busy_node.h"
#include "shale/models/plan/time/goodput.h"
#include "shale/models/plan/time/layout_options.h"
#include "shale/models/plan/time/layout_search.h"
#include "shale/models/plan/time/measured_cluster.h"
#include "shale/models/plan/time/planned_step.h"
#include "shale/models/tools/plan_fit.h"
#include "shale/models/tools/plan_text.h"
#include "shale/models/tools/planned_task.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/recipes.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMostLayouts = 1000;
constexpr const char* kHere = "here";  // value of --cluster that means the CPUs of this host

struct PlanOptions {
  int ranks = 1;
  int rank = -1;  // rank to plan; -1: the first rank of each pipeline stage
  std::string check;
  bool layouts = false;
  int64_t top = 20;
  int64_t search_nodes = 96;  // maximum number of layouts that a search plans; 0: no limit
  bool explain = false;
  bool json = false;
  std::string write;         // file for the options of the fastest layout; empty: none
  std::string cluster;       // names or files of clusters, or kHere; empty: no cluster
  std::string tokens;        // text with the tokens or samples of the whole run; empty: unknown
  double price = 0;          // dollars per device hour; 0: price of the cluster
  std::string kernel_times;  // cache file of measured kernel times; empty: none
  bool measure = false;
  double device_mtbf_h = 0;  // mean hours between failures of a device; 0: ignore failures
  FailureModel failures;     // durations of saves and restarts, in seconds
  RecipeChoice recipe;
  TrainConfig train;
};

void describe(ConfigSpec& spec, PlanOptions& options, const PlannedProgram& program) {
  spec.section("Plan");
  spec.add("ranks", options.ranks, "number of ranks to plan for; they need not exist",
           {.min = 1, .max = 1 << 20});
  spec.add("rank", options.rank, "plan only this rank",
           {.min = 0, .help = {.default_text = "the first of each pipeline stage"}});
  spec.add("check", options.check,
           "compare the plan with this run (its --out folder); exit code 0 if the memory of every "
           "rank is as planned, else 1",
           {.is_path = true, .help = {.metavar = "RUN"}});
  spec.add(
      "layouts", options.layouts,
      "list all combinations of --zero, --pipeline, --recompute and --offload by peak memory, and "
      "mark those that exceed --device-memory; with --cluster: list the fastest layouts that fit");
  spec.add("top", options.top, "number of fastest layouts to list",
           {.min = 1, .max = kMostLayouts});
  spec.add("search-nodes", options.search_nodes,
           "maximum number of layouts that the search plans, fastest estimates first; 0: no limit",
           {.min = 0});
  spec.add("write", options.write,
           "write the fastest layout and the given options to a file for train_lm --config",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.add("explain", options.explain, "list the allocations at peak memory: tag, module, caller");
  spec.add("json", options.json, "print one JSON line per planned rank, in bytes");
  spec.section("Time");
  spec.add(
      "cluster", options.cluster,
      cat("clusters to compare: names (", cluster_names(),
          "), files (docs/explanation/planning.md), or the word here, to measure this machine "
          "with --ranks processes; also prints whether the run fits, and its step time by parts"),
      {.is_path = true, .help = {.metavar = "NAME|FILE,...|here", .default_text = "none"}});
  spec.add("tokens", options.tokens,
           "tokens (or samples) of the whole run, such as 15T; also prints its time in days, and "
           "with --price its cost in dollars",
           {.help = {.metavar = "COUNT"}});
  spec.add("price", options.price, "dollars per device hour; 0: the cluster's price",
           {.min = 0, .help = {.metavar = "DOLLARS"}});
  spec.add("tensor-pieces", program.run.tensor_pieces,
           "maximum number of chunks of a tensor-parallel transfer; 1: no overlap; 0: one chunk "
           "per rank of --tensor, as in training",
           {.min = 0, .max = 1 << 16});
  spec.add("measure", options.measure,
           "time the kernels on this CPU instead of using the figures of the cluster file");
  spec.add("kernel-times", options.kernel_times, "cache file for the kernel times of --measure",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.section("Failures");
  const auto seconds = [&](const char* name, double& field, const char* help) {
    spec.add(name, field, help, {.min = 0, .help = {.metavar = "SECONDS"}});
  };
  spec.add("device-mtbf", options.device_mtbf_h,
           "mean hours between failures of a device (Llama 3: 50700); also prints the best save "
           "interval and the goodput; 0: no failures",
           {.min = 0, .help = {.metavar = "HOURS"}});
  seconds("save-stall", options.failures.save_s, "time for which a checkpoint stops training");
  seconds("save-write", options.failures.write_s,
          "time until a checkpoint, written in the background, is on disk");
  seconds("restart-time", options.failures.restart_s,
          "time from a failure to the first step after it");
  program.describe(spec);
  describe(spec, options.recipe, /*program=*/"");
  spec.example("shale plan --model gpt2-1558m --seq-len 1024 --ranks 1024 --zero 3");
  spec.example("shale plan --ranks 8 --cluster h100 --layouts --write layout.json");
  spec.example("shale plan --ranks 8 --cluster h100,a100 --tokens 15T --price 2.5");
  spec.example(
      "shale plan --model llama3.1-70b --lora-rank 16 --frozen-dtype nf4 --ranks 8 --zero 3");
  spec.example("shale plan image --recipe vit-l16 --ranks 8");
  spec.example("shale plan --check out");
  spec.needs("write top search-nodes", "--layouts");
  spec.needs("tensor-pieces", "--tensor or --layouts");
  spec.needs("write top search-nodes measure kernel-times tokens price", "--cluster");
  spec.needs("price", "--tokens");
}

std::string failures_text(const PlanOptions& options) {
  if (options.device_mtbf_h == 0) return {};
  FailureModel model = options.failures;
  model.between_failures_s = 3600 * options.device_mtbf_h / options.ranks;
  const Goodput best = best_goodput(model);
  return cat("failures: one in ", format_number(model.between_failures_s / 3600),
             " h; with --save-minutes ", format_number(best.interval_s / 60), ", ",
             format_number(100 * best.share),
             "% of the time is spent on steps that no failure undoes\n");
}

// Machines for which step times are planned; empty without --cluster.
class Machines {
 public:
  // Sets the device of `run` to that of the cluster. cluster: null without --cluster.
  Machines(const PlanOptions& options, const Cluster* cluster, RunConfig& run)
      : path_(options.kernel_times) {
    if (cluster == nullptr) return;
    cluster_ = *cluster;
    if (cluster_.is_gpu && options.measure) {
      throw ConfigError(cat("--measure runs kernels on this CPU, but --cluster ", options.cluster,
                            " has the GPU ", cluster_.device,
                            "; use a cluster of CPUs, or leave out --measure"));
    }
    check_times(run, cluster_);
    if (run.device == "auto") run.device = cluster_.is_gpu ? "cuda" : "cpu";
    const auto beside = std::min<int64_t>(options.ranks, cluster_.devices_per_node);
    if (options.measure) node_.emplace(static_cast<int>(beside) - 1);
    kernels_.set_crowding(std::max(1.0, double(beside) / cpu_counts().bound));
    machines_.emplace(PlanMachines{cluster_, kernels_});
    kernels_.set_measures(options.measure);
    if (!path_.empty()) kernels_.read(path_);
  }

  const PlanMachines* get() const { return machines_ ? &*machines_ : nullptr; }
  const Cluster& cluster() const { return cluster_; }
  void keep_times() {
    node_.reset();
    if (!path_.empty()) kernels_.write(path_);
  }

 private:
  const std::string path_;
  Cluster cluster_;
  KernelTimes kernels_{cluster_};
  std::optional<PlanMachines> machines_;
  std::optional<BusyNode> node_;
};

// Planned run, and what it needs on a cluster.
struct Planned {
  std::unique_ptr<Task> task;
  std::vector<TimedRank> ranks;
  std::optional<PlannedStep> step;
  PlanFit fit;
  double seconds = 0;  // time that the plan took
};

Planned plan_on(const PlanOptions& options, const ConfigSpec& spec, const PlannedProgram& program,
                const Cluster* cluster) {
  RunConfig& run = program.run;
  Machines machines(options, cluster, run);
  run.epochs = 0;  // without data, --steps says how often each kind of step occurs
  program.resolve(options.ranks);
  int64_t most_bytes = std::exchange(run.device_memory, 0);
  if (most_bytes == 0 && cluster != nullptr) most_bytes = int64_t(cluster->memory);
  Planned planned{.task = program.make_task()};
  const auto start = Clock::now();
  if (options.rank < 0) {
    planned.ranks = plan_stages(run, program.make_task, options.ranks, machines.get());
  } else {
    const RunConfig shorter = shortened(run, options.ranks, options.measure);
    const std::unique_ptr<Task> task = program.make_task();
    planned.ranks.push_back(
        machines.get() != nullptr
            ? plan_time(shorter, *task, options.rank, options.ranks, *machines.get())
            : TimedRank{plan_rank(shorter, *task, options.rank, options.ranks), {}});
  }
  planned.seconds = seconds_since(start);
  machines.keep_times();
  run.trace.clear();  // otherwise every further plan would write a memory profile
  if (machines.get() != nullptr && options.rank < 0) {
    planned.step =
        planned_step(run, planned.task->unit(), machines.cluster(), planned.ranks, options.ranks);
  }
  planned.fit =
      plan_fit(program, options.ranks, planned.ranks, most_bytes, spec.was_set("global-batch"));
  return planned;
}

RunSize size_of(const PlanOptions& options, const Cluster& cluster) {
  return {.items = options.tokens.empty() ? 0 : parse_items(options.tokens),
          .price = options.price > 0 ? options.price : cluster.price_per_hour};
}

int exit_code(const PlanFit& fit) {
  return fit.fits ? 0 : static_cast<int>(ExitCode::kOutOfMemory);
}

int plan(const PlanOptions& options, const ConfigSpec& spec, const PlannedProgram& program,
         const Cluster* cluster) {
  const Planned planned = plan_on(options, spec, program, cluster);
  const std::vector<int> firsts = options.rank >= 0
                                      ? std::vector<int>{options.rank}
                                      : first_ranks_of_stages(program.run, options.ranks);
  std::string text = options.json ? "" : describe(planned.fit);
  if (!options.json) {
    for (const std::string& line : planned.task->summary()) text += line + "\n";
  }
  std::string alike;  // stages that share the plan of an earlier stage
  for (size_t i = 0; i < firsts.size(); ++i) {
    const TimedRank& rank = planned.ranks[i];
    if (options.json) {
      text += to_json(rank.memory) + "\n";
    } else if (rank.memory.rank == firsts[i]) {
      text += "\n" + describe(rank, planned.task->units(), options.explain);
      if (!program.run.no_save) {
        text += cat("host, for saves: ", bytes_text(rank.checkpoint_bytes), "\n");
      }
    } else {
      alike += cat(alike.empty() ? "\n" : "; ", "rank ", firsts[i], ": at most the memory of rank ",
                   rank.memory.rank);
    }
  }
  if (options.json) {
    if (planned.step) text += to_json(*planned.step) + "\n";
    std::fputs(text.c_str(), stdout);
    return exit_code(planned.fit);
  }
  if (!alike.empty()) text += alike + "\n";
  if (planned.step) {
    const SampleUnit unit = planned.task->unit();
    text += cat("\n", describe(*planned.step, *cluster, unit, options.ranks),
                describe(*planned.step, size_of(options, *cluster), *cluster, unit, options.ranks));
  }
  text += cat("\n", failures_text(options));
  std::printf("%splanned %zu of %d ranks in %.2f s, %d threads of a kernel\n", text.c_str(),
              firsts.size(), options.ranks, planned.seconds, program.run.threads);
  return exit_code(planned.fit);
}

// Prints a row for each cluster. Returns 0 if the run fits one of them.
int compare_clusters(const PlanOptions& options, const ConfigSpec& spec,
                     const PlannedProgram& program, const std::vector<Cluster>& clusters) {
  const RunConfig given = program.run;
  const bool has_prices = std::ranges::any_of(
      clusters, [&](const Cluster& c) { return size_of(options, c).price > 0; });
  std::string text;
  int code = static_cast<int>(ExitCode::kOutOfMemory);
  for (const Cluster& cluster : clusters) {
    program.run = given;
    const Planned planned = plan_on(options, spec, program, &cluster);
    RunSize size = size_of(options, cluster);
    if (text.empty()) {
      text = cluster_row(nullptr, nullptr, nullptr, {size.items, double(has_prices)}, 0);
    }
    text += cluster_row(&cluster, &*planned.step, &planned.fit, size, options.ranks);
    if (planned.fit.fits) code = 0;
  }
  std::fputs(text.c_str(), stdout);
  return code;
}

// ---- Layouts ----

// Returns a function that makes tasks like `task`, the run's, with fewer layers. Returns null if
// the layers of the run differ, so that a few of them do not represent the whole model.
MakeShorterTask shorter_tasks(const TrainConfig& config, LanguageTask& task) {
  const LanguageModelConfig& model = dynamic_cast<LanguageModel&>(task.model()).config();
  // fp8 computes the first and last layers in another dtype; full_layers have no window.
  if (config.run.dtype == Precision::kFp8 || model.full_layers > 0) return {};
  return [config](int64_t layers) {
    TrainConfig shorter = config;
    shorter.language.dry_run_layers = layers;
    return make_language_task(shorter);
  };
}

void show_progress(const FoundLayouts& found) {
  std::string best = "none fits yet";
  if (!found.best.empty()) {
    const PlannedLayout& first = found.best.front();
    best = cat("fastest ", format_number(1e3 * first.step->seconds), " ms: ", first.flags);
  }
  std::fprintf(stderr, "%s of %s layouts planned; %s\n", cat(found.planned).c_str(),
               cat(found.candidates).c_str(), best.c_str());
}

int search(const PlanOptions& options, const ConfigSpec& spec, const Machines& machines) {
  const TrainConfig config = without_data(options.train);
  const RunConfig& run = config.run;
  const RunSize size = size_of(options, machines.cluster());
  const auto start = Clock::now();
  const std::unique_ptr<LanguageTask> task = make_language_task(config);
  const LayoutSearchOptions search{
      .most_bytes = run.device_memory > 0 ? run.device_memory : int64_t(machines.cluster().memory),
      .top = size_t(options.top),
      .keep_micro_batch = spec.was_set("micro-batch"),
      .keep_recompute = spec.was_set("recompute"),
      .most_nodes = options.search_nodes,
      .make_shorter = shorter_tasks(config, *task),
      .check =
          [&](const RunConfig& layout) {
            check_compatible(incompatible_language_options(),
                             TrainConfig{.language = config.language, .run = layout});
          },
      .progress = show_progress};
  const FoundLayouts found = search_layouts(
      run, [&] { return make_language_task(config); }, options.ranks, *machines.get(), search);
  std::printf("%s; %.1f s\n", describe(found, search.most_bytes).c_str(), seconds_since(start));
  check_found(found, search, "--layouts", "raise --search-nodes, or set it to 0 for no limit");
  if (size.items > 0) {
    const std::string text =
        describe(*found.best.front().step, size, machines.cluster(), task->unit(), options.ranks);
    std::printf("the fastest layout:\n%s", text.c_str());
  }
  if (options.write.empty()) return 0;
  write_file_atomically(options.write, layout_options(options.train, spec, found.best.front()));
  std::printf("wrote the fastest layout to %s\n", options.write.c_str());
  return 0;
}

int list_layouts(PlanOptions& options, const ConfigSpec& spec, const Cluster* cluster) {
  RunConfig& run = options.train.run;
  Machines machines(options, cluster, run);
  if (machines.get() != nullptr) {
    check_free(spec);
    resolve_for_search(options.train, options.ranks);
    const int code = search(options, spec, machines);
    machines.keep_times();
    return code;
  }
  for (const char* const name : {"zero", "pipeline", "recompute", "offload"}) {
    if (!spec.was_set(name)) continue;
    throw ConfigError(
        cat("--layouts without --cluster lists all values of --", name, "; leave out --", name));
  }
  resolve(options.train, options.ranks);
  const int64_t most = run.device_memory;
  std::string text = cat(padded("device held", kCellWidth), " ", padded("in use", kCellWidth), " ",
                         padded("host held", kCellWidth), "  flags\n");
  const auto make_task = [&] { return make_language_task(options.train); };
  for (const PlannedLayout& layout : plan_layouts(run, make_task, options.ranks)) {
    text += cat(padded(bytes_text(layout.device.reserved), kCellWidth), " ",
                padded(bytes_text(layout.device.allocated), kCellWidth), " ",
                padded(bytes_text(layout.host_bytes), kCellWidth), "  ",
                layout.flags.empty() ? "(none)" : layout.flags,
                most == 0 || layout.device.reserved <= most ? "" : "  (more than --device-memory)",
                "\n");
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

// ---- Comparison of a run with its plan ----

// How memory of a run compares with the plan.
enum class Claim { kEqual, kAtMost };

void compare(std::string& text, const std::string& where, Claim claim, const MemoryPeak& run,
             const MemoryPeak& planned) {
  const auto line = [&](std::string_view what, int64_t found, int64_t want) {
    if (found == want || (claim == Claim::kAtMost && found < want)) return;
    text += cat(where, ", ", what, ": the run had ", found, " bytes, the plan has ",
                claim == Claim::kAtMost ? "at most " : "", want, "\n");
  };
  if (claim == Claim::kEqual) {
    for (int tag = 0; tag < kMemoryTags; ++tag) {
      const auto at = static_cast<size_t>(tag);
      line(memory_tag_name(MemoryTag(tag)), run.by_tag[at], planned.by_tag[at]);
    }
  }
  line("in use", run.allocated, planned.allocated);
  line("held", run.reserved, planned.reserved);
}

int check(ConfigSpec& spec, PlanOptions& options) {
  const fs::path folder = options.check;
  const std::string path = (folder / "config.json").string();
  const std::vector<RankMemory> run = read_memory(folder);
  const MappedFile file(path);
  try {
    spec.read_json(file.text(), path);
  } catch (const ConfigError& error) {
    throw ConfigError(cat(error.what(), "; shale plan supports only train_lm runs"));
  }
  RunConfig& config = options.train.run;
  std::string& data = options.train.language.source.data;
  if (!fs::exists(data)) data.clear();
  const auto ranks = static_cast<int>(run.size());
  resolve(options.train, ranks);
  // If the peak may be at another time, its breakdown by tag may differ too.
  const Claim claim = memory_depends_on_time(config, ranks) ? Claim::kAtMost : Claim::kEqual;
  std::string differences;
  for (const RankMemory& found : run) {
    const std::unique_ptr<LanguageTask> task = make_language_task(options.train);
    config.threads = found.threads;
    config.trace.clear();
    const RankMemory planned = plan_rank(config, *task, found.rank, ranks).memory;
    compare(differences, cat("rank ", found.rank, ", device"), claim, found.device, planned.device);
    compare(differences, cat("rank ", found.rank, ", host"), claim,
            found.host.value_or(MemoryPeak()), planned.host.value_or(MemoryPeak()));
  }
  if (differences.empty()) {
    std::printf("%s: the memory of %d %s is %s\n", options.check.c_str(), ranks,
                ranks == 1 ? "rank" : "ranks",
                claim == Claim::kEqual ? "the planned one to the byte" : "at most the planned one");
    return 0;
  }
  std::fputs(differences.c_str(), stdout);
  return 1;
}

}  // namespace

int run_plan(int argc, const char* const* argv) {
  PlanOptions options;
  options.train.language.is_dry_run = true;
  ConfigSpec spec("shale plan", "plans memory and time of a run, without the machines");
  const Json recipe = find_recipe(argc, argv);
  std::string name = recipe.is_object() ? recipe["program"].text() : "train_lm";
  std::vector<const char*> arguments(argv, argv + argc);
  // Accepts lm, image or diffusion, as shale train does.
  if (argc > 1 && argv[1][0] != '-') {
    name = cat("train_", argv[1]);
    arguments.erase(arguments.begin() + 1);
  }
  const PlannedProgram program = planned_program(name, options.train);
  describe(spec, options, program);
  const ParseResult parsed =
      parse_with_recipe(spec, static_cast<int>(arguments.size()), arguments.data());
  if (parsed.should_exit) {
    std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  set_process_log({.quiet = true});
  if (name != "train_lm" && (options.layouts || !options.check.empty())) {
    throw ConfigError("--layouts and --check need a run of train_lm, found one of " + name);
  }
  if (!options.check.empty()) return check(spec, options);
  RunConfig& run = program.run;
  if (run.threads == 0) run.threads = std::max(1, cpu_counts().bound / options.ranks);
  const auto planned = [&](const Cluster* cluster) {
    return options.layouts ? list_layouts(options, spec, cluster)
                           : plan(options, spec, program, cluster);
  };
  if (options.cluster.empty()) return planned(nullptr);
  if (options.cluster != kHere) {
    const std::vector<Cluster> clusters = read_clusters(options.cluster);
    if (clusters.size() == 1) return planned(&clusters.front());
    if (options.layouts || options.json || options.rank >= 0) {
      throw ConfigError(cat("--cluster with ", clusters.size(),
                            " clusters prints one table; leave out --layouts, --json and --rank"));
    }
    return compare_clusters(options, spec, program, clusters);
  }
  return comm::run(0, nullptr, [&](comm::World& world) {
    if (world.size() != options.ranks) {
      throw ConfigError(cat("--cluster here needs as many processes as --ranks, ", options.ranks,
                            ", found ", world.size(), "; use mpirun -np ", options.ranks));
    }
    const Cluster cluster = measured_cluster(world, run.threads);
    return world.rank() == 0 ? planned(&cluster) : 0;
  });
}

}  // namespace shale::models
