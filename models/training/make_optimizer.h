#pragma once

#include <memory>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::models {

// The optimizer that --optimizer and its options ask for.
std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 std::vector<OptimShard> shards);

}  // namespace shale::models
