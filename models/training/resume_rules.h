#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "shale/models/training/run_config.h"

namespace shale::models {

class Task;

// Description of a run, as its checkpoints store it.
struct RunDescription {
  // JSON values by name: options, properties of the model and data (Task::facts(): "model shape",
  // "training data") and checksums of the data ("training data checksum"). Names of options have no
  // space, all other names have one. Checksums are compared only if both runs have them.
  std::map<std::string, std::string> values;
  // Options that a resumed run may change (ConfigOption::may_change): device, layout, length and
  // output. Some of them change losses by rounding (--dtype, --grad-dtype, the number of ranks
  // without --reproducible). Others change the remaining steps on purpose: --global-batch (no
  // sample is skipped or repeated), --steps (if the learning rates do not depend on it), and the
  // decay of --schedule wsd until it begins. Not stored.
  std::set<std::string> may_change;
  // Names of the options that were set explicitly. Not stored.
  std::set<std::string> given;
  // For options whose default is determined at run time: the value that stands for the default. Not
  // stored.
  std::map<std::string, std::string> open = {};
  // Files for other programs that checkpoints contain (Task::attachments()). Not compared.
  std::map<std::string, std::string> attachments = {};
};

// Describes a run of the task with these resolved options. `spec` includes the options of `config`.
RunDescription describe_run(const ConfigSpec& spec, const RunConfig& config, const Task& task);

// Adds the kernels that this run leaves out on its GPUs (checks/kernel_choice.h).
void add_left_out(RunDescription& run, const std::vector<std::string>& kernels);

// Compares a resumed run with the run of its checkpoint. source: the checkpoint, for messages.
// step: number of steps done.
//
// Throws ConfigError with every option that differs and must not, and its stored and present value.
// If all options agree, throws it with the properties of model and data (Task::facts()) that
// differ.
// - An option that the checkpoint's version of Shale did not have agrees unless it was set.
// - A removed option (base/removed_options.h) agrees unless the stored run used it.
// - Checksums that the checkpoint lacks are not compared, with a warning.
// - A different set of disabled kernels is a warning; with --reproducible, an error.
void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const std::string& source, int64_t step);

}  // namespace shale::models
