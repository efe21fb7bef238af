#pragma once

#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// What DataParallel refuses before it would go wrong: ConfigError, unless said otherwise.

// Options of a model, and of a unit, that do not go together or with the groups. Throws
// InternalError for the host tier of another device.
void check_options(const ShardingContext& shared, const DataParallelOptions& options);
void check_unit_options(const ShardingContext& shared, const UnitOptions& options);
// Layers that ranks share, where the groups do not say with which ranks.
void check_exchange(const ShardGroups& groups, const std::vector<UnitPlan>& plans);
// Models or options that differ between ranks. Collective; throws CommError.
void compare_ranks(const ShardGroups& groups, const DataParallelOptions& options,
                   const std::vector<UnitPlan>& plans, const UnitOptions& unit);

}  // namespace shale::comm
