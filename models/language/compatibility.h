#pragma once

#include <span>

#include "shale/models/language/config.h"
#include "shale/models/training/compatibility.h"

namespace shale::models {

// Returns the combinations of options that only language models reject. incompatible_run_options()
// has those that all models reject.
std::span<const Incompatible<TrainConfig>> incompatible_language_options();

}  // namespace shale::models
