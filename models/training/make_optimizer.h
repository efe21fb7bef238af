#pragma once

#include <memory>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::models {

// Fills in the rates and eps of --optimizer that were not given. Throws ConfigError for those that
// it has not, and for --param-groups that cannot be read.
void resolve_optimizer(RunConfig& config);

// The optimizer that --optimizer and its options, resolved, ask for. Throws ConfigError for groups
// that no parameter is in, and as optimizers do. units: the repeated parts of the model, whose
// matrices muon is for.
std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 const std::vector<Module*>& units,
                                                 std::vector<OptimShard> shards);

}  // namespace shale::models
