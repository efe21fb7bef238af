#pragma once

#include <string>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/plan/time/layouts.h"

namespace shale::models {

// Calls resolve() for a run whose layout is to be searched. Its global batch need not suit the
// present layout.
void resolve_for_search(TrainConfig& config, int ranks);

// Throws ConfigError if the user has set an option that the layout search chooses. --micro-batch
// and --recompute may be set.
void check_free(const ConfigSpec& spec);

// Returns the config without its data but with the data's vocabulary, so that plans need not open
// the data.
TrainConfig without_data(TrainConfig config);

// Returns text for a file of train_lm --config: the options of the layout, and the options in
// `given` that the user has set. config: the run whose layout was searched.
std::string layout_options(const TrainConfig& config, const ConfigSpec& given,
                           const PlannedLayout& layout);

}  // namespace shale::models
