// shale plan: memory that a run would need, rank by rank, without its machines.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/text.h"
#include "shale/comm/world.h"
#include "shale/models/language/config.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/plan/time/busy_node.h"
#include "shale/models/plan/time/goodput.h"
#include "shale/models/plan/time/layout_options.h"
#include "shale/models/plan/time/layout_search.h"
#include "shale/models/plan/time/measured_cluster.h"
#include "shale/models/plan/time/planned_step.h"
#include "shale/models/tools/planned_task.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/recipes.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kExplained = 25;  // number of rows that --explain prints
constexpr int64_t kMostLayouts = 1000;
constexpr const char* kHere = "here";  // value of --cluster for the CPUs of this host

struct PlanOptions {
  int ranks = 1;
  int rank = -1;  // rank to plan; -1: the first rank of each pipeline stage
  std::string check;
  bool layouts = false;
  int64_t top = 20;
  double search_time = 60;
  bool explain = false;
  bool json = false;
  int64_t search_dry_runs = 0;  // maximum number of dry runs of a layout search; 0: no limit
  std::string write;            // file for the options of the fastest layout; empty: none
  std::string cluster;          // cluster file, or kHere; empty: no cluster
  std::string kernel_times;     // cache file; empty: none
  bool measure = false;
  double device_mtbf_h = 0;  // mean hours between failures of a device; 0: ignore failures
  FailureModel failures;     // seconds of saves and restarts
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
  spec.add("layouts", options.layouts,
           "list all combinations of --zero, --pipeline, --recompute and --offload by peak memory, "
           "and which exceed --device-memory; with --cluster: the fastest layouts that fit");
  spec.add("top", options.top, "number of fastest layouts to list",
           {.min = 1, .max = kMostLayouts});
  spec.add("search-time", options.search_time,
           "seconds after which the search stops with the fastest layout so far; 0: no limit",
           {.min = 0, .help = {.metavar = "S"}});
  spec.add("search-dry-runs", options.search_dry_runs,
           "dry runs after which the search stops with the fastest layout so far; 0: no limit",
           {.min = 0});
  spec.add("write", options.write,
           "write the fastest layout and the given options to a file for train_lm --config",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.add("explain", options.explain, "list the allocations at peak memory: tag, module, caller");
  spec.add("json", options.json, "print one JSON line per planned rank, in bytes");
  spec.section("Time");
  spec.add("cluster", options.cluster,
           "cluster file (docs/explanation/planning.md), or the word here, to measure this machine "
           "with --ranks processes; adds the step time and its parts",
           {.is_path = true, .help = {.metavar = "FILE|here", .default_text = "none"}});
  spec.add("tensor-pieces", program.run.tensor_pieces,
           "maximum chunks of tensor-parallel transfers; 1: no overlap; 0: one per rank of "
           "--tensor, as in a run",
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
           "mean hours between failures of a device (Llama 3: 50700); adds the best save interval "
           "and the goodput; 0: no failures",
           {.min = 0, .help = {.metavar = "HOURS"}});
  seconds("save-stall", options.failures.save_s, "time for which a checkpoint stops training");
  seconds("save-write", options.failures.write_s,
          "time until a checkpoint is on disk, written in the background");
  seconds("restart-time", options.failures.restart_s,
          "time from a failure to the first step after it");
  program.describe(spec);
  describe(spec, options.recipe, /*program=*/"");
  spec.example("shale plan --model gpt2-1558m --seq-len 1024 --ranks 1024 --zero 3");
  spec.example("shale plan --ranks 8 --cluster h100.json --layouts --write layout.json");
  spec.example("shale plan --recipe vit-l16 --ranks 8");
  spec.example("shale plan --check out");
  spec.needs("write top search-time search-dry-runs", "--layouts");
  spec.needs("tensor-pieces", "--tensor or --layouts");
  spec.needs("write top search-time search-dry-runs measure kernel-times", "--cluster");
}

std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<double>(bytes));
}

std::string padded(std::string_view text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + std::string(text);
}

constexpr size_t kNameWidth = 24, kCellWidth = 13;

std::string header() {
  std::string line(kNameWidth, ' ');
  for (int tag = 0; tag < kMemoryTags; ++tag) {
    line += cat(" ", padded(memory_tag_name(MemoryTag(tag)), kCellWidth));
  }
  return cat(line, " ", padded("sum", kCellWidth), "\n");
}

std::string row(std::string_view name, const std::array<int64_t, kMemoryTags>& by_tag) {
  std::string line(name);
  line.resize(std::max(kNameWidth, line.size()), ' ');
  int64_t sum = 0;
  for (const int64_t bytes : by_tag) {
    line += cat(" ", padded(bytes_text(bytes), kCellWidth));
    sum += bytes;
  }
  return cat(line, " ", padded(bytes_text(sum), kCellWidth), "\n");
}

// Returns the unit that contains the module of a share; "outside units" if there is none.
std::string unit_of(const MemoryLedger::Share& share, const std::vector<Module*>& units) {
  const bool is_flat = share.tag == MemoryTag::kParameter || share.tag == MemoryTag::kGradient ||
                       share.tag == MemoryTag::kOptimizer;
  const std::string name = (is_flat ? share.what : share.place) + ".";
  for (const Module* unit : units) {
    const std::string prefix = unit->full_name();
    if (name.starts_with(prefix + ".") || name.starts_with(prefix + " ")) return prefix;
  }
  return "outside units";
}

// Tabulates the memory in use at the peak, by unit in the model's order and by tag.
std::string unit_table(const PlannedRank& rank, const std::vector<Module*>& units) {
  std::map<std::string, std::array<int64_t, kMemoryTags>> by_unit;
  for (const MemoryLedger::Share& share : rank.at_peak) {
    by_unit[unit_of(share, units)][static_cast<size_t>(share.tag)] += share.bytes;
  }
  std::string text = header();
  for (const Module* unit : units) {
    const auto found = by_unit.find(unit->full_name());
    if (found != by_unit.end()) text += row(found->first, found->second);
  }
  return text + row("outside units", by_unit["outside units"]) +
         row("all", rank.memory.device.by_tag);
}

std::string title(const PlannedRank& rank) {
  const RankMemory& memory = rank.memory;
  std::string text = cat("rank ", memory.rank);
  if (!rank.place.empty()) text += cat(" (", rank.place, ")");
  text += cat(": ", bytes_text(memory.device.allocated), " in use at the peak, ",
              bytes_text(memory.device.reserved), " held");
  if (memory.host) {
    text += cat("; of the host ", bytes_text(memory.host->allocated), " and ",
                bytes_text(memory.host->reserved));
  }
  return text + "\n";
}

std::string explanation(const PlannedRank& rank) {
  std::string text = "in use at the peak, largest first: bytes, blocks, tag, module, asker\n";
  for (size_t i = 0; i < std::min(kExplained, rank.at_peak.size()); ++i) {
    const MemoryLedger::Share& share = rank.at_peak[i];
    text += cat("  ", padded(bytes_text(share.bytes), kCellWidth), " ",
                padded(cat(share.blocks), 6), "  ", memory_tag_name(share.tag), ", ",
                share.place.empty() ? "-" : share.place, ", ", share.what, "\n");
  }
  return text;
}

std::string failures_text(const PlanOptions& options) {
  if (options.device_mtbf_h == 0) return {};
  FailureModel model = options.failures;
  model.between_failures_s = 3600 * options.device_mtbf_h / options.ranks;
  const Goodput best = best_goodput(model);
  return cat("failures: one in ", format_number(model.between_failures_s / 3600),
             " h; with --save-minutes ", format_number(best.interval_s / 60), ", ",
             format_number(100 * best.share),
             "% of the time makes steps that are not lost again\n");
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
      throw ConfigError(cat("--measure runs kernels on this CPU, but ", options.cluster, " is of ",
                            cluster_.device, "; use a cluster of CPUs, or leave out --measure"));
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

int plan(PlanOptions& options, const PlannedProgram& program, const Cluster* cluster) {
  RunConfig& run = program.run;
  Machines machines(options, cluster, run);
  run.epochs = 0;  // without data, --steps says how often each kind of step comes
  program.resolve(options.ranks);
  const std::unique_ptr<Task> task = program.make_task();
  const auto start = Clock::now();
  const std::vector<int> ranks = options.rank >= 0 ? std::vector<int>{options.rank}
                                                   : first_ranks_of_stages(run, options.ranks);
  std::vector<TimedRank> planned;
  for (const int rank : ranks) {
    // Every rank needs a new task, because planning leaves its parameters without memory.
    const std::unique_ptr<Task> of_rank = program.make_task();
    planned.push_back(machines.get() != nullptr
                          ? plan_time(run, *of_rank, rank, options.ranks, *machines.get())
                          : TimedRank{plan_rank(run, *of_rank, rank, options.ranks), {}});
    run.memory_profile.clear();  // only the first rank's profile is written
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  machines.keep_times();
  std::optional<PlannedStep> step;
  if (machines.get() != nullptr && options.rank < 0) {
    step = planned_step(run, task->unit(), machines.cluster(), planned, options.ranks);
  }
  if (options.json) {
    for (const PlannedRank& rank : planned) std::printf("%s\n", to_json(rank.memory).c_str());
    if (step) std::printf("%s\n", to_json(*step).c_str());
    return 0;
  }
  std::string text;
  for (const std::string& line : task->summary()) text += line + "\n";
  for (const PlannedRank& rank : planned) {
    text += cat("\n", title(rank), unit_table(rank, task->units()));
    if (rank.memory.host) text += row("host", rank.memory.host->by_tag);
    if (!run.no_save) text += cat("host, for saves: ", bytes_text(rank.checkpoint_bytes), "\n");
    if (options.explain) text += explanation(rank);
  }
  if (step) {
    text += cat("\n", describe(*step, machines.cluster(), task->unit(), options.ranks));
  }
  text += cat("\n", failures_text(options));
  std::printf("%splanned %zu of %d ranks in %.2f s, %d threads of a kernel\n", text.c_str(),
              planned.size(), options.ranks, seconds, run.threads);
  return 0;
}

// ---- Layouts ----

// Names the reasons why a step takes longer than its GEMMs: the two largest waits, and memory.
std::string limits_of(const PlannedLayout& layout, int64_t most_bytes) {
  const PlannedStep& step = *layout.step;
  std::vector<std::pair<double, std::string_view>> waits{{step.exposed_data, "data"},
                                                         {step.exposed_model, "layers"},
                                                         {step.bubble, "stages"},
                                                         {step.slowed, "slower kernels"}};
  std::ranges::sort(waits, std::greater());
  std::string text;
  for (const auto& [seconds, name] : {waits[0], waits[1]}) {
    const auto percent = std::lround(100 * seconds / step.seconds);
    if (percent > 0) text += cat(text.empty() ? "" : ", ", name, " ", percent, "%");
  }
  if (most_bytes > 0) {
    text += cat(text.empty() ? "" : ", ", "memory ",
                std::lround(100.0 * double(layout.device.reserved) / double(most_bytes)), "%");
  }
  return text.empty() ? "-" : text;
}

std::string text_of_search(const FoundLayouts& found, int64_t most_bytes) {
  std::string text = cat(padded("a step", kCellWidth), "    MFU ",
                         padded("device held", kCellWidth), "  flags; what limits it\n");
  for (const PlannedLayout& layout : found.best) {
    text += cat(padded(cat(format_number(1e3 * layout.step->seconds), " ms"), kCellWidth), " ",
                padded(cat(std::lround(100 * layout.step->mfu()), "%"), 6), " ",
                padded(bytes_text(layout.device.reserved), kCellWidth), "  ", layout.flags, "; ",
                limits_of(layout, most_bytes), "\n");
  }
  text += cat(found.candidates, " layouts: ", found.planned, " planned, ", found.slower,
              " cannot be faster, ", found.too_large, " need more memory, ", found.refused,
              " are refused by the model");
  if (found.left == 0) return text;
  return text + cat(", ", found.left, " were not evaluated, which take at least ",
                    format_number(1e3 * found.least_seconds),
                    " ms. The search reached its limit after ", found.dry_runs,
                    " dry runs. --search-time 0 --search-dry-runs ", found.dry_runs,
                    " repeats this result, --search-dry-runs 0 evaluates all layouts");
}

int search(const PlanOptions& options, const ConfigSpec& spec, const Machines& machines) {
  const TrainConfig config = without_data(options.train);
  const RunConfig& run = config.run;
  const auto start = Clock::now();
  const LayoutSearchOptions search{
      .most_bytes = run.device_memory > 0 ? run.device_memory : int64_t(machines.cluster().memory),
      .top = size_t(options.top),
      .keep_micro_batch = spec.was_set("micro-batch"),
      .keep_recompute = spec.was_set("recompute"),
      .most_seconds = options.search_time,
      .most_dry_runs = options.search_dry_runs};
  const FoundLayouts found = search_layouts(
      run, [&] { return make_language_task(config); }, options.ranks, *machines.get(), search);
  std::printf("%s; %.1f s\n", text_of_search(found, search.most_bytes).c_str(),
              std::chrono::duration<double>(Clock::now() - start).count());
  check_found(found, search, "--layouts",
              "raise --search-time or --search-dry-runs, or set both to 0 for no limit");
  if (options.write.empty()) return 0;
  write_file_atomically(options.write, layout_options(options.train, spec, found.best.front()));
  std::printf("%s has the first\n", options.write.c_str());
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
        cat("--layouts lists all values of --", name, "; leave it out, or use --cluster"));
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

// Relation between a figure of a run and its plan.
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
  // If the time of the peak may differ, its breakdown by tag may differ too.
  const Claim claim = memory_depends_on_time(config, ranks) ? Claim::kAtMost : Claim::kEqual;
  std::string differences;
  for (const RankMemory& found : run) {
    const std::unique_ptr<LanguageTask> task = make_language_task(options.train);
    config.threads = found.threads;
    config.memory_profile.clear();
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
  ConfigSpec spec("shale plan", "plans memory and time of a train_lm run, without the machines");
  const Json recipe = find_recipe(argc, argv);
  const std::string name = recipe.is_object() ? recipe["program"].text() : "train_lm";
  const PlannedProgram program = planned_program(name, options.train);
  describe(spec, options, program);
  const ParseResult parsed = parse_with_recipe(spec, argc, argv);
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
    return options.layouts ? list_layouts(options, spec, cluster) : plan(options, program, cluster);
  };
  if (options.cluster.empty()) return planned(nullptr);
  if (options.cluster != kHere) {
    const Cluster cluster = read_cluster(options.cluster);
    return planned(&cluster);
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
