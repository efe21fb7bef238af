#pragma once

#include <string_view>

#include "shale/models/training/run_config.h"

namespace shale::models {

// What ranks can share where samples are images. `models`: of what, "residual networks".

// Throws ConfigError for options by which ranks share layers or stages of a model, or parts of a
// sample, of models that can have ranks of data parallelism alone; `why`: "normalise over ...".
void check_data_parallel_only(const RunConfig& run, std::string_view models, std::string_view why);

// Of models that --tensor cuts, with whole samples between their layers, and --pipeline: throws
// ConfigError for --context, and for micro-batches that the leaves of --tensor do not divide. `run`
// is resolved.
void check_whole_samples(const RunConfig& run, std::string_view models);

}  // namespace shale::models
