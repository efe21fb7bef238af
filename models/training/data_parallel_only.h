#pragma once

#include <string_view>

#include "shale/models/training/run_config.h"

namespace shale::models {

// Throws ConfigError for options by which ranks share layers, sequences or stages of a model, in a
// program whose models ("residual networks") can have ranks of data parallelism alone.
void check_data_parallel_only(const RunConfig& run, std::string_view models);

}  // namespace shale::models
