#pragma once

#include <span>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Checks of DataParallel. They throw ConfigError unless stated otherwise.

// Refuses options of a model, or of a unit, that are incompatible with each other or with the
// groups. Throws InternalError if the host tier belongs to another device.
void check_options(const ShardingContext& shared, const DataParallelOptions& options);

// Returns true if sums over the ranks are the same tree as on one host. hosts: the host of each
// rank. Each host must have the same number of consecutive ranks, a power of two (process_group.h).
bool adds_in_rank_order(std::span<const std::string> hosts);
void check_unit_options(const ShardingContext& shared, const UnitOptions& options);
// Refuses tensor-parallel layers if the groups have no ShardGroups::tensor.
void check_exchange(const ShardGroups& groups, const std::vector<UnitPlan>& plans);
// Refuses models or options that differ between ranks. Collective; throws CommError.
void compare_ranks(const ShardGroups& groups, const DataParallelOptions& options,
                   const std::vector<UnitPlan>& plans, const UnitOptions& unit);

}  // namespace shale::comm
