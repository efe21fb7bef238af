#include "shale/models/training/resume_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/models/training/task.h"

namespace shale::models {
namespace {

bool is_fact(const std::string& name) {
  return name.find(' ') != name.npos;
}

constexpr std::string_view kChecksum = " checksum";

// Old checkpoints have none, and some tasks know more of their data when they are asked to.
bool is_checksum(const std::string& name) {
  return name.ends_with(kChecksum);
}

std::string spelled(const std::string& name) {
  return is_fact(name) ? "the " + name : "--" + name;
}

}  // namespace

RunDescription describe_run(const ConfigSpec& spec, const RunConfig& config, const Task& task) {
  RunDescription run;
  for (const auto& [name, value] : spec.values()) run.values[name] = value;
  for (const auto& [name, value] : task.facts()) run.values[name] = value;
  // As text: not every reader of JSON has integers of 64 bits.
  for (const auto& [name, value] : task.data_checksums()) {
    run.values[cat(name, kChecksum)] = nlohmann::json(value).dump();
  }
  // In the form that values have when they come back from a checkpoint.
  for (auto& [name, value] : run.values) value = nlohmann::json::parse(value).dump();
  for (const std::string& name : spec.changeable()) run.may_change.insert(name);
  if (config.schedule == optim::Decay::kConstant) run.may_change.insert("steps");
  return run;
}

void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const std::string& source) {
  const auto fail = [&](const std::string& name, const std::string& was, const std::string& is) {
    throw ConfigError(cat("resume: ", spelled(excerpt(name)), " was ", excerpt(was, 300), " in ",
                          source, ", is ", is, " now",
                          name == "steps" ? ", and the schedule depends on it" : "",
                          "; want the same, or another --out for another run"));
  };
  const auto knows_data = [](const RunDescription& run) {
    return std::any_of(run.values.begin(), run.values.end(),
                       [](const auto& entry) { return is_checksum(entry.first); });
  };
  if (knows_data(now) && !knows_data(stored)) {
    log_info(source, " has no checksum of the data: what is in it is not compared");
  }
  // Facts come after the options that may be their reason.
  for (const bool facts : {false, true}) {
    for (const auto& [name, value] : now.values) {
      if (is_fact(name) != facts || now.may_change.contains(name)) continue;
      const auto it = stored.values.find(name);
      if (it == stored.values.end() && is_checksum(name)) continue;
      if (it == stored.values.end()) fail(name, "not known", value);
      if (it->second != value) fail(name, it->second, value);
    }
  }
  for (const auto& [name, value] : stored.values) {
    if (!now.values.contains(name) && !is_checksum(name)) fail(name, value, "not known");
  }
}

}  // namespace shale::models
