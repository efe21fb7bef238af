#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/models/language_model.h"
#include "shale/models/training/config.h"

namespace shale::models {

// What a checkpoint says about the run that wrote it: names of options, and of a few facts ("model
// shape", "training data"), with their values as JSON.
using RunDescription = std::map<std::string, std::string>;

// Of a run whose options are resolved.
RunDescription describe_run(const TrainConfig& config, const LanguageModelConfig& model,
                            const DatasetSplits& data);

// Which options a resumed run may change: those that say where and how fast it runs, how much of it
// and what it prints. Some of them change losses by rounding (--dtype, --grad-dtype, ranks without
// --reproducible), or what comes next by intent (--global-batch: no sample is skipped or repeated;
// --steps, with a constant schedule). All others would continue another run; an option that is not
// known here counts to these.
bool may_change_on_resume(const std::string& option, const TrainConfig& config);
// Those that always may.
std::vector<std::string> options_free_to_change();

// Throws ConfigError that names the option, the stored value and the one given, for the first that
// differs and may not. `source` is the checkpoint, for the message.
void check_same_run(const RunDescription& stored, const RunDescription& now,
                    const TrainConfig& config, const std::string& source);

}  // namespace shale::models
