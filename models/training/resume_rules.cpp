#include "shale/models/training/resume_rules.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/base/removed_options.h"
#include "shale/models/training/task.h"

namespace shale::models {
namespace {

bool is_fact(const std::string& name) {
  return name.find(' ') != name.npos;
}

constexpr std::string_view kChecksum = " checksum";

// Returns true for names of checksums. Old checkpoints lack them, and some tasks compute them only
// on request.
bool is_checksum(const std::string& name) {
  return name.ends_with(kChecksum);
}

// Name of a value: the list of kernels that a run does not use on its GPUs. Missing if the list is
// empty.
constexpr const char* kLeftOut = "kernels left out";

// Options that determine the decay of --schedule wsd and wsd-1-sqrt.
constexpr std::array kDecay = {"steps", "decay-steps", "schedule", "min-lr"};

std::string spelled(const std::string& name) {
  return is_fact(name) ? "the " + name : "--" + name;
}

// Values of an option in two runs, as a user would write them. Shortens computed numbers unless
// that makes the two values equal.
struct Written {
  std::string was, is;

  Written(const RunDescription& now, const std::string& name, const std::string& before,
          const std::string& after)
      : was(in_few_digits(before)), is(in_few_digits(after)) {
    if (was == is) was = excerpt(before, 300), is = after;
    const auto open = now.open.find(name);
    if (open == now.open.end()) return;
    if (before == open->second) was = "the default";
    if (after == open->second) is = "the default";
  }

 private:
  static std::string in_few_digits(const std::string& value) {
    const std::optional<double> number = parse_real(value);
    if (!number || parse_int(value)) return excerpt(value, 300);
    return format_real(static_cast<float>(*number));
  }
};

// Removes the members that are equal in two JSON objects, such as model shapes.
void leave_differing_members(std::string& before, std::string& after) {
  Json was = Json::parse(before, {}, "value"), is = Json::parse(after, {}, "value");
  if (!was.is_object() || !is.is_object()) return;
  const Json::Object members = was.items();
  for (const auto& [key, value] : members) {
    if (!is.contains(key) || is[key] != value) continue;
    was.erase(key);
    is.erase(key);
  }
  before = was.dump(), after = is.dump();
}

// Returns the step at which the decay begins; nothing for other schedules.
std::optional<int64_t> decay_begin(const RunDescription& run) {
  const auto number = [&](const char* name) -> std::optional<int64_t> {
    const auto it = run.values.find(name);
    return it == run.values.end() ? std::nullopt : parse_int(it->second);
  };
  const std::optional<int64_t> steps = number("steps"), decay = number("decay-steps");
  if (!steps || !decay) return {};
  return *steps - *decay;
}

// Throws ConfigError if a new decay would change the learning rates of steps that are done.
void check_decay(const RunDescription& stored, const RunDescription& now, const std::string& source,
                 int64_t step) {
  const std::optional<int64_t> was = decay_begin(stored), is = decay_begin(now);
  if (!was || !is || step <= std::min(*was, *is)) return;
  for (const char* const name : kDecay) {
    const auto before = stored.values.find(name), after = now.values.find(name);
    if (before == stored.values.end() || after == now.values.end()) continue;
    if (before->second == after->second) continue;
    const Written written(now, name, before->second, after->second);
    throw ConfigError(cat("resume: ", spelled(name), " was ", written.was, " in ", source, ", is ",
                          written.is, " now; after ", step,
                          " steps the learning rate already decays with one of these values (from "
                          "step ",
                          std::min(*was, *is),
                          " on); use the same value, or a checkpoint from before that step"));
  }
}

void check_left_out(const RunDescription& stored, const RunDescription& now,
                    const std::string& source) {
  const auto of = [](const RunDescription& run) {
    const auto found = run.values.find(kLeftOut);
    return found == run.values.end() ? std::string("none") : found->second;
  };
  const std::string was = of(stored), is = of(now);
  if (was == is) return;
  const std::string text =
      cat("kernels that the GPUs leave out were ", was, " in ", source, ", and are ", is, " now");
  const auto reproducible = now.values.find("reproducible");
  if (reproducible != now.values.end() && reproducible->second == "true") {
    throw ConfigError(cat("resume: ", text,
                          "; use GPUs, driver and build of that run, or leave out --reproducible"));
  }
  log_warning(text, "; losses may differ by rounding");
}

// Throws ConfigError if the stored run used an option that has been removed.
void check_removed(const RunDescription& stored, const RunDescription& now,
                   const std::string& source) {
  for (const RemovedOption& option : removed_options()) {
    const auto was = stored.values.find(std::string(option.name));
    if (was == stored.values.end()) continue;
    const bool is_whole = option.value.empty();
    if (is_whole && (now.values.contains(was->first) || was->second == option.unused)) continue;
    if (!is_whole && was->second != cat('"', option.value, '"')) continue;
    if (option.may_change) {
      log_warning(source, " is of a run with --", option.name, " ", excerpt(was->second),
                  ", which was removed; continuing without it; ", option.instead);
      continue;
    }
    throw ConfigError(cat("resume: ", source, " is of a run with --", option.name, " ",
                          is_whole ? excerpt(was->second) : std::string(option.value),
                          ", which was removed; ", option.instead,
                          " in a new run, or go on with the version that wrote it"));
  }
}

// Returns the sorted names of all values in the two runs: those of Task::facts() if `facts`, else
// those of options.
std::set<std::string> names_of(const RunDescription& stored, const RunDescription& now,
                               bool facts) {
  std::set<std::string> names;
  for (const RunDescription* const run : {&stored, &now}) {
    for (const auto& [name, value] : run->values) {
      if (is_fact(name) == facts) names.insert(name);
    }
  }
  return names;
}

// Returns the differences that are not allowed, such as "--seed was 1 in SOURCE, is 2 now, --lr was
// 0.1, is 0.2 now".
std::string differences(const RunDescription& stored, const RunDescription& now,
                        const std::string& source, bool facts) {
  std::string found;
  for (const std::string& name : names_of(stored, now, facts)) {
    if (name == kLeftOut) continue;
    const auto was = stored.values.find(name), is = now.values.find(name);
    const bool is_new = was == stored.values.end(), is_gone = is == now.values.end();
    // A schedule may change between wsd and wsd-1-sqrt only; see check_decay().
    const bool is_other = name == "schedule" && !is_new && !was->second.starts_with("\"wsd");
    if (now.may_change.contains(name) && !is_other) continue;
    if ((is_new || is_gone) && is_checksum(name)) continue;
    if (is_new && !facts && !now.given.contains(name)) continue;
    if (is_gone && find_removed_option(name) != nullptr) continue;  // see check_removed()
    if (!is_new && !is_gone && was->second == is->second) continue;
    std::string before = is_new ? "" : was->second, after = is_gone ? "" : is->second;
    if (!is_new && !is_gone) leave_differing_members(before, after);
    const Written written(now, name, before, after);
    found += cat(found.empty() ? "" : ", ", spelled(excerpt(name)), " was ",
                 is_new ? "not known" : written.was, found.empty() ? cat(" in ", source) : "",
                 ", is ", is_gone ? "not known" : written.is, " now",
                 name == "steps" ? ", and the schedule depends on it" : "");
  }
  return found;
}

}  // namespace

RunDescription describe_run(const ConfigSpec& spec, const RunConfig& config, const Task& task) {
  RunDescription run;
  for (const auto& [name, value] : spec.values()) run.values[name] = value;
  for (const auto& [name, value] : task.facts()) run.values[name] = value;
  // Stores checksums as text, because some JSON readers do not support 64-bit integers.
  for (const auto& [name, value] : task.data_checksums()) {
    run.values[cat(name, kChecksum)] = json_quote(value);
  }
  // Converts values to the form in which a checkpoint returns them.
  for (auto& [name, value] : run.values) {
    Json canonical = Json::parse(value, {}, name);
    canonical.sort_keys();
    value = canonical.dump();
  }
  for (const std::string& name : spec.changeable()) run.may_change.insert(name);
  for (const auto& [name, value] : spec.values()) {
    if (spec.was_set(name)) run.given.insert(name);
  }
  run.open = spec.open_values();
  run.attachments = task.attachments();
  using enum optim::Decay;
  if (config.schedule == kConstant || config.schedule == kInverseSqrt) {
    run.may_change.insert("steps");
  }
  if (optim::is_wsd(config.schedule)) run.may_change.insert(kDecay.begin(), kDecay.end());
  // A resumed run may change options that its optimizer does not use, because older versions stored
  // a momentum for every optimizer. A different --optimizer is still refused.
  for (const auto& [name, value] : {std::pair("beta1", config.beta1),
                                    {"beta2", config.beta2},
                                    {"eps", config.eps},
                                    {"momentum", config.momentum}}) {
    if (value < 0) run.may_change.insert(name);
  }
  return run;
}

void add_left_out(RunDescription& run, const std::vector<std::string>& kernels) {
  if (kernels.empty()) return;
  run.values[kLeftOut] = Json(kernels).dump();
}

void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const std::string& source, int64_t step) {
  for (const auto& [name, value] : now.values) {
    if (!is_checksum(name) || stored.values.contains(name)) continue;
    log_warning(source, " has no ", name, ", so it was not compared; the next checkpoint has it");
  }
  check_removed(stored, now, source);
  // Compares options first, because a different option may be the cause of different Task::facts().
  for (const bool facts : {false, true}) {
    const std::string found = differences(stored, now, source, facts);
    if (found.empty()) continue;
    const bool has_init = !facts && now.values.contains("seq-len");
    throw ConfigError(cat(
        "resume: ", found, "; use the same values, or another --out for a new run",
        has_init ? cat(", with --init ", source, " to start from its weights") : std::string()));
  }
  check_decay(stored, now, source, step);
  check_left_out(stored, now, source);
}

}  // namespace shale::models
