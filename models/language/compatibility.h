#pragma once

#include <span>

#include "shale/models/language/config.h"
#include "shale/models/training/compatibility.h"

namespace shale::models {

// Options of language models that do not work together, besides incompatible_run_options().
std::span<const Incompatible<TrainConfig>> incompatible_language_options();

}  // namespace shale::models
