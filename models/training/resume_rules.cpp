#include "shale/models/training/resume_rules.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"
#include "shale/models/model_shape.h"

namespace shale::models {
namespace {

constexpr auto kFree = std::to_array<std::string_view>({
    // where the data lies; what is in it is compared by its fingerprint
    "data",
    "data-format",
    // the model's shape is compared, however it came about
    "model",
    "layers",
    "width",
    "heads",
    "vocab",
    "init",
    "loss-chunk",
    // positions are counted in samples
    "micro-batch",
    "global-batch",
    // device
    "device",
    "threads",
    "dtype",
    "loss-scale",
    "loss-scale-window",
    "loss-scale-hysteresis",
    "device-memory",
    "recompute",
    "deterministic",
    "cuda-graph",
    "dependent-launch",
    "comm",
    "timeout",
    // data parallelism: checkpoints know no layout
    "zero",
    "grad-dtype",
    "no-overlap",
    "reproducible",
    "prefetch",
    "reshard",
    "persist-below",
    "check-replicas",
    "shard-ranks",
    "reshard-ranks",
    "offload",
    "offload-ratio",
    "offload-activations",
    // what is done with the result
    "out",
    "save-every",
    "save-minutes",
    "keep",
    "no-save",
    "resume",
    "eval-every",
    "eval-samples",
    "sample-tokens",
    "sample-prompt",
    "temperature",
    "top-k",
    "export",
    "export-shard-size",
    "measure-peak",
    "quiet",
});

bool is_fact(const std::string& name) {
  return name.find(' ') != name.npos;
}

std::string spelled(const std::string& name) {
  return is_fact(name) ? "the " + name : "--" + name;
}

}  // namespace

RunDescription describe_run(const TrainConfig& config, const LanguageModelConfig& model,
                            const DatasetSplits& data) {
  TrainConfig copy = config;
  ConfigSpec spec("train_lm", "");
  describe(spec, copy);
  RunDescription run;
  for (const auto& [name, value] : spec.values()) run[name] = value;
  run["model shape"] = model_shape_json(model);
  run["training data"] = cat("\"", data.train->size(), " tokens as ", to_string(data.format),
                             " (fingerprint ", data.fingerprint, ")\"");
  // In the form that values have when they come back from a checkpoint.
  for (auto& [name, value] : run) value = nlohmann::json::parse(value).dump();
  return run;
}

bool may_change_on_resume(const std::string& option, const TrainConfig& config) {
  if (option == "steps") return config.schedule == optim::Decay::kConstant;
  return std::find(kFree.begin(), kFree.end(), option) != kFree.end();
}

std::vector<std::string> options_free_to_change() {
  return {kFree.begin(), kFree.end()};
}

void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const TrainConfig& config, const std::string& source) {
  const auto fail = [&](const std::string& name, const std::string& was, const std::string& is) {
    throw ConfigError(cat("resume: ", spelled(excerpt(name)), " was ", excerpt(was, 300), " in ",
                          source, ", is ", is, " now",
                          name == "steps" ? ", and the schedule depends on it" : "",
                          "; want the same, or another --out for another run"));
  };
  // Facts come after the options that may be their reason.
  for (const bool facts : {false, true}) {
    for (const auto& [name, value] : now) {
      if (is_fact(name) != facts || may_change_on_resume(name, config)) continue;
      const auto it = stored.find(name);
      if (it == stored.end()) fail(name, "not known", value);
      if (it->second != value) fail(name, it->second, value);
    }
  }
  for (const auto& [name, value] : stored) {
    if (!now.contains(name)) fail(name, value, "not known");
  }
}

}  // namespace shale::models
