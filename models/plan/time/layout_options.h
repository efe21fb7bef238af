#pragma once

#include <string>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/plan/time/layouts.h"

namespace shale::models {

// resolve() of a run whose layout is searched: its batch need not fit the present one.
void resolve_for_search(TrainConfig& config, int ranks);

// Throws ConfigError where the user has given an option that a search of layouts chooses.
// --micro-batch and --recompute may be given.
void check_free(const ConfigSpec& spec);

// The same run without its data, whose vocabulary it keeps: plans need not open it each.
TrainConfig without_data(TrainConfig config);

// The layout's options and those that the user has given, of `given`, as a file that train_lm
// --config takes. config: of the run whose layout was searched.
std::string layout_options(const TrainConfig& config, const ConfigSpec& given,
                           const PlannedLayout& layout);

}  // namespace shale::models
