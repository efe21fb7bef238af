#pragma once

// Sharded data parallelism: fully_shard() for a loop of one's own, DataParallel under it,
// ShardedParameter for what a rank holds, FullState for whole values. Parallel cuts layers and
// sequences over ranks, and distributes experts; tensor_parallel() and expert_parallel() do so for
// one model.

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/data/sharded_parameter.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/comm/parallel/parallel_step.h"
#include "shale/comm/parallel/tensor/tensor_parallel.h"
#include "shale/comm/parallel/tensor/tensor_plan.h"
