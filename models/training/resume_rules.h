#pragma once

#include <map>
#include <set>
#include <string>

#include "shale/models/training/run_config.h"

namespace shale::models {

class Task;

// What a checkpoint says about the run that wrote it.
struct RunDescription {
  // Names of options, of a few facts ("model shape", "training data") and of the data's checksums
  // ("training data checksum"), with their values as JSON. Facts have a space in their names;
  // checksums end with that word, and are compared if both know them.
  std::map<std::string, std::string> values;
  // Options that a resumed run may change (ConfigOption::may_change): those that say where and how
  // fast it runs, how much of it and what it prints. Some of them change losses by rounding
  // (--dtype, --grad-dtype, ranks without --reproducible), or what comes next by intent
  // (--global-batch: no sample is skipped or repeated; --steps, where rates do not depend on them;
  // the decay of --schedule wsd, until it begins). All
  // others would continue another run. Not stored.
  std::set<std::string> may_change;
  // Options that were given, not left at what they are by default. Not stored.
  std::set<std::string> given;
  // Of options with a default that is found at run time, what stands for it. Not stored.
  std::map<std::string, std::string> open = {};
  // What checkpoints carry for other programs (Task::attachments). Not compared.
  std::map<std::string, std::string> attachments = {};
};

// Describes a run of the task with these options, resolved. `config` is among those that `spec`
// describes.
RunDescription describe_run(const ConfigSpec& spec, const RunConfig& config, const Task& task);

// Throws ConfigError that names every option that differs and may not, with the stored value and
// this run's; the facts that differ, if all options agree. An option that the checkpoint does not
// know, because the version that wrote it had none, agrees unless it was given; a checksum that it
// does not know is not compared, and a warning names it. An option that was removed since
// (base/removed_options.h) agrees unless the run used it. `source` is the checkpoint, for the
// message, and `step` the steps done.
void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const std::string& source, int64_t step);

}  // namespace shale::models
