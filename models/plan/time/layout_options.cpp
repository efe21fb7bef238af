#include "shale/models/plan/time/layout_options.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/language/preference_task.h"

namespace shale::models {
namespace {

// Options that the search sets. The user may set --micro-batch, --global-batch and --recompute, but
// no other one of them.
constexpr std::array kChosen{"tensor",          "context",   "expert",      "pipeline",
                             "pipeline-chunks", "zero",      "shard-ranks", "offload",
                             "micro-batch",     "recompute", "global-batch"};
constexpr std::array kRefused{
    "tensor", "context",     "expert",        "pipeline", "pipeline-schedule", "pipeline-chunks",
    "zero",   "shard-ranks", "reshard-ranks", "offload",  "batch-ramp"};

}  // namespace

void check_free(const ConfigSpec& spec) {
  for (const char* const name : kRefused) {
    if (!spec.was_set(name)) continue;
    throw ConfigError(
        cat("--layouts chooses --", name, " itself; leave out --", name, " or --layouts"));
  }
}

void resolve_for_search(TrainConfig& config, int ranks) {
  const int64_t samples = std::exchange(config.run.global_batch, 0);
  resolve(config, ranks);
  if (samples > 0) config.run.global_batch = samples;
}

TrainConfig without_data(TrainConfig config) {
  const std::unique_ptr<LanguageTask> task = make_language_task(config);
  if (!config.language.source.data.empty() && config.language.init.empty()) {
    config.language.vocab = dynamic_cast<LanguageModel&>(task->model()).config().vocab;
    config.language.source.data.clear();
  }
  return config;
}

std::string layout_options(const TrainConfig& config, const ConfigSpec& given,
                           const PlannedLayout& layout) {
  TrainConfig chosen{.language = config.language, .run = layout.config};
  ConfigSpec names("train_lm", "");
  describe(names, chosen, /*needs_data=*/false);
  std::string text;
  for (const auto& [name, value] : names.values()) {
    const bool is_chosen = std::ranges::find(kChosen, name) != kChosen.end();
    // 0 means that the option is not set
    if (!given.was_set(name) && (!is_chosen || value == "0")) continue;
    std::string key = name;
    std::ranges::replace(key, '-', '_');
    text += cat(text.empty() ? "{\n  " : ",\n  ", json_quote(key), ": ", value);
  }
  return text + "\n}\n";
}

}  // namespace shale::models
