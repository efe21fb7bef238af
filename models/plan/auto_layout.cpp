#include "shale/models/plan/auto_layout.h"

#include <array>
#include <chrono>
#include <filesystem>
#include <utility>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/manifest.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/plan/measured_cluster.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

// What is chosen; of these, --micro-batch, --global-batch and --recompute may be given.
constexpr std::array kChosen{"tensor",          "context",   "expert",      "pipeline",
                             "pipeline-chunks", "zero",      "shard-ranks", "offload",
                             "micro-batch",     "recompute", "global-batch"};
constexpr std::array kRefused{
    "tensor",          "context",           "expert",         "pipeline",
    "pipeline-chunks", "pipeline-schedule", "pipeline-split", "zero",
    "shard-ranks",     "reshard-ranks",     "offload",        "micro-batches",
    "batch-ramp"};

// As ConfigSpec::read_json() reads it; options that are as without a flag are left out.
std::string text_of(const Json& options, int ranks) {
  Json text{{"parallel", cat("auto:", ranks)}};
  for (std::string name : kChosen) {
    const Json* found = options.find(name);
    if (found == nullptr || found->is_null()) continue;
    if (*found == 0 || (name == "offload" && *found == "none")) continue;  // as without
    std::ranges::replace(name, '-', '_');
    text[name] = *found;
  }
  return text.dump();
}

// Of a run: the options that its newest checkpoint in `folder` has, if they were chosen for so many
// ranks.
std::string stored_layout(const RunConfig& run, int ranks) {
  if (run.resume == "none") return {};
  const auto newest = newest_checkpoint(run.resume == "auto" ? run.out : run.resume);
  if (!newest) return {};
  const std::string path = (fs::path(*newest) / kManifestName).string();
  const CheckpointManifest manifest = parse_checkpoint_manifest(MappedFile(path).text(), path);
  const Json options = Json::parse(manifest.config, {.max_bytes = kMaxManifestBytes}, path);
  const Json* parallel = options.find("parallel");
  if (parallel == nullptr || *parallel != cat("auto:", ranks)) return {};
  return text_of(options, ranks);
}

void reset_layout(RunConfig& run) {
  const RunConfig fresh;
  run.tensor = fresh.tensor;
  run.context = fresh.context;
  run.ranks_per_process = fresh.ranks_per_process;
  run.expert = fresh.expert;
  run.pipeline = fresh.pipeline;
  run.pipeline_chunks = fresh.pipeline_chunks;
  run.zero = fresh.zero;
  run.shard_ranks = fresh.shard_ranks;
  run.offload = fresh.offload;
  run.offload_to = fresh.offload_to;
}

// No need to open the data for every plan: the vocabulary is known then.
TrainConfig without_data(TrainConfig config) {
  config.language.source.validate = false;
  const std::unique_ptr<LanguageTask> task = make_language_task(config);
  if (!config.language.source.data.empty() && config.language.init.empty()) {
    config.language.vocab = dynamic_cast<LanguageModel&>(task->model()).config().vocab;
    config.language.source.data.clear();
  }
  return config;
}

std::string chosen_layout(const TrainConfig& config, const ConfigSpec& spec, const Cluster& cluster,
                          int ranks) {
  const auto start = std::chrono::steady_clock::now();
  set_process_log({.quiet = true});  // plans speak as runs do
  FoundLayouts found;
  try {
    found = best_layout(config, spec, cluster, ranks);
  } catch (...) {
    set_process_log({.quiet = config.run.quiet});
    throw;
  }
  set_process_log({.quiet = config.run.quiet});
  const PlannedLayout& best = found.best.front();
  log_info("--parallel auto: ", best.flags, " --global-batch ", best.config.global_batch,
           ", planned ", 1e3 * best.step->seconds, " ms a step, found in ",
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), " s");
  if (found.left > 0) {
    log_warning("--parallel auto: uses the best layout so far; ", describe_left(found));
  }
  TrainConfig of_best{.language = config.language, .run = best.config};
  ConfigSpec names("train_lm", "");
  describe(names, of_best, /*needs_data=*/false);
  Json options;
  for (const auto& [name, value] : names.values()) options[name] = Json::parse(value, {}, name);
  return text_of(options, ranks);
}

}  // namespace

void check_free(const ConfigSpec& spec, std::string_view chooser) {
  for (const char* const name : kRefused) {
    if (!spec.was_set(name)) continue;
    throw ConfigError(cat(chooser, " with --", name,
                          ": it chooses how ranks share the model and its steps; want one of the "
                          "two"));
  }
}

LayoutWish layout_wish(std::string_view parallel) {
  constexpr std::string_view kAuto = "auto", kChosenFor = "auto:";
  if (parallel == "none") return {};
  if (parallel == kAuto) return {.is_auto = true};
  if (parallel.starts_with(kChosenFor)) {
    const auto ranks = parse_int(parallel.substr(kChosenFor.size()));
    if (ranks && *ranks > 0 && *ranks < (1 << 24)) {
      return {.is_auto = true, .chosen_for = static_cast<int>(*ranks)};
    }
  }
  throw ConfigError(cat("--parallel is ", excerpt(parallel), ", want none or auto"));
}

void resolve_for_search(TrainConfig& config, int ranks) {
  const int64_t samples = std::exchange(config.run.global_batch, 0);
  resolve(config, ranks);
  if (samples > 0) config.run.global_batch = samples;
}

FoundLayouts best_layout(const TrainConfig& config, const ConfigSpec& spec, const Cluster& cluster,
                         int ranks) {
  const LayoutWish wish = layout_wish(config.parallel);
  const bool is_first = wish.chosen_for == 0;
  if (is_first) check_free(spec, "--parallel auto");
  TrainConfig start = config;
  reset_layout(start.run);
  resolve_for_search(start, ranks);
  if (start.run.device == "auto") start.run.device = cluster.is_gpu ? "cuda" : "cpu";
  start = without_data(start);
  KernelTimes kernels(cluster);
  const LayoutSearchOptions options{
      .most_bytes = start.run.device_memory > 0 ? start.run.device_memory : int64_t(cluster.memory),
      .top = 1,
      .keep_micro_batch = start.run.reproducible || (is_first && spec.was_set("micro-batch")),
      .keep_recompute = is_first && spec.was_set("recompute"),
      .most_seconds = start.run.timeout_s / 2,
      .most_dry_runs = start.search_dry_runs};
  FoundLayouts found = search_layouts(
      start.run, [&] { return make_language_task(start); }, ranks, {cluster, kernels}, options);
  check_found(found, options, "--parallel auto",
              "raise --search-dry-runs or --timeout, of which a search takes half, or give the "
              "flags of a layout, which shale plan --layouts --search-time 0 finds");
  return found;
}

void choose_layout(TrainConfig& config, ConfigSpec& spec, comm::World& world) {
  const LayoutWish wish = layout_wish(config.parallel);
  const int ranks = world.size();
  if (!wish.is_auto) {
    if (!config.cluster.empty()) {
      throw ConfigError("--cluster says for which machines --parallel auto chooses; want both");
    }
    if (config.search_dry_runs > 0) throw ConfigError("--search-dry-runs needs --parallel auto");
    return;
  }
  if (wish.chosen_for == ranks) return;  // a config.json has all of it
  if (wish.chosen_for == 0) check_free(spec, "--parallel auto");
  const auto group = world.group({.name = "layout", .timeout_s = config.run.timeout_s});
  const auto agreed = [&](const std::string& roots) {
    return group->broadcast_bytes(roots, /*root=*/0, "layout");
  };
  const bool decides = world.rank() == 0;
  std::string text = agreed(decides ? stored_layout(config.run, ranks) : "");
  if (!text.empty()) {
    log_info("--parallel auto: as the checkpoint has it: ", text);
  } else {
    const bool is_cpu = device_of(config.run, world).type == DeviceType::kCpu;
    TrainConfig planned = config;
    planned.run.threads = resolve_threads(config.run.threads, world.local_size());
    Cluster cluster;
    if (!config.cluster.empty()) {
      cluster = read_cluster(config.cluster);
    } else if (is_cpu) {
      cluster = measured_cluster(world, planned.run.threads);
    }
    if (cluster.is_gpu == is_cpu || cluster.device.empty()) {
      throw ConfigError(cat("--parallel auto on ", is_cpu ? "CPUs" : "GPUs", " with ",
                            config.cluster.empty() ? "no --cluster" : "--cluster ", config.cluster,
                            "; want a file of a cluster of ", is_cpu ? "CPUs" : "GPUs"));
    }
    check_times(planned.run, cluster);
    text = agreed(decides ? chosen_layout(planned, spec, cluster, ranks) : "");
  }
  reset_layout(config.run);
  spec.read_json(text, "--parallel auto");
}

}  // namespace shale::models
