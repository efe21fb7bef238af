#pragma once

#include <string_view>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/data/sampler.h"

namespace shale::models {

// Reads --batch-ramp: "BATCH:STEPS,BATCH:STEPS,...", the global batches of the first steps. Throws
// ConfigError, naming the phase, for anything else.
std::vector<BatchPhase> parse_batch_ramp(std::string_view text);

// The batches of a run that is resolved, on so many ranks; with 1 those of all ranks together.
BatchLayout batch_layout(const RunConfig& config, int64_t ranks);

}  // namespace shale::models
