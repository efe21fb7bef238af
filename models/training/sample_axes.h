#pragma once

#include <string_view>

#include "shale/models/training/run_config.h"

namespace shale::models {

// Checks of parallel options for tasks whose samples are images. models: name of the kind of model
// in messages, such as "residual networks".

// Throws ConfigError for --tensor, --context or --pipeline, for models that support data
// parallelism only. `why` completes the message: "normalise over ...".
void check_data_parallel_only(const RunConfig& run, std::string_view models, std::string_view why);

// Checks parallel options for models that support --pipeline and --tensor and whose layers exchange
// whole samples. Throws ConfigError for --context, and for micro-batches that --tensor does not
// divide. `run` must be resolved.
void check_whole_samples(const RunConfig& run, std::string_view models);

}  // namespace shale::models
