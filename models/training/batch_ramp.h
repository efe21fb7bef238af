#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/data/sampler.h"

namespace shale::models {

// Parses --batch-ramp, "BATCH:STEPS,BATCH:STEPS,...": global batch and number of steps of each
// phase at the start of a run. Throws ConfigError, which names the phase, for invalid text.
std::vector<BatchPhase> parse_batch_ramp(std::string_view text);

// Parses --skip-samples, "A-B": first and last sample, counted from 1; nothing for an empty text.
// Throws ConfigError.
std::optional<std::pair<int64_t, int64_t>> parse_sample_range(std::string_view text);

// Returns how a resolved run divides global batches among `ranks` data-parallel ranks.
BatchLayout batch_layout(const RunConfig& config, int64_t ranks);

}  // namespace shale::models
