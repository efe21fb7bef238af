#include "shale/models/training/resume_rules.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
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

// What the decay of --schedule wsd depends on.
constexpr std::array kDecay = {"steps", "decay-steps", "decay-shape", "min-lr"};

std::string spelled(const std::string& name) {
  return is_fact(name) ? "the " + name : "--" + name;
}

// The step with which the decay begins; nothing where there is no such schedule.
std::optional<int64_t> decay_begin(const RunDescription& run) {
  const auto number = [&](const char* name) -> std::optional<int64_t> {
    const auto it = run.values.find(name);
    return it == run.values.end() ? std::nullopt : parse_int(it->second);
  };
  const std::optional<int64_t> steps = number("steps"), decay = number("decay-steps");
  if (!steps || !decay) return {};
  return *steps - *decay;
}

// The rates of the steps that were done are not planned anew.
void check_decay(const RunDescription& stored, const RunDescription& now, const std::string& source,
                 int64_t step) {
  const std::optional<int64_t> was = decay_begin(stored), is = decay_begin(now);
  if (!was || !is || step <= std::min(*was, *is)) return;
  for (const char* const name : kDecay) {
    const auto before = stored.values.find(name), after = now.values.find(name);
    if (before == stored.values.end() || after == now.values.end()) continue;
    if (before->second == after->second) continue;
    throw ConfigError(cat("resume: ", spelled(name), " was ", before->second, " in ", source,
                          ", is ", after->second, " now; after ", step,
                          " steps the decay of one of them, from step ", std::min(*was, *is),
                          " on, has begun: want the same, or a checkpoint from before it"));
  }
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
  using enum optim::Decay;
  if (config.schedule == kConstant || config.schedule == kInverseSqrt) {
    run.may_change.insert("steps");
  }
  if (config.schedule == kWsd) run.may_change.insert(kDecay.begin(), kDecay.end());
  return run;
}

void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const std::string& source, int64_t step) {
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
  check_decay(stored, now, source, step);
  for (const auto& [name, value] : stored.values) {
    if (!now.values.contains(name) && !is_checksum(name)) fail(name, value, "not known");
  }
}

}  // namespace shale::models
