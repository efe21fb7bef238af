#pragma once

#include <memory>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/optim/adafactor.h"

namespace shale::models {

// The optimizer that --optimizer and its options ask for. sum_over_ranks: see optim::Adafactor.
std::unique_ptr<optim::Optimizer> make_optimizer(
    const RunConfig& config, std::vector<OptimShard> shards,
    optim::Adafactor::SumOverRanks sum_over_ranks = {});

}  // namespace shale::models
