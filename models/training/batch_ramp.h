#pragma once

#include <string_view>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/data/sampler.h"

namespace shale::models {

// Parses --batch-ramp, "BATCH:STEPS,BATCH:STEPS,...": the global batches of the first steps. Throws
// ConfigError, naming the phase, for invalid text.
std::vector<BatchPhase> parse_batch_ramp(std::string_view text);

// Returns the division of global batches over `ranks` data-parallel ranks, for a resolved run.
BatchLayout batch_layout(const RunConfig& config, int64_t ranks);

}  // namespace shale::models
