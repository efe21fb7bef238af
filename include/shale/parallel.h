#pragma once

// Sharded data parallelism: fully_shard() for custom loops; DataParallel, which it uses;
// ShardedParameter for a rank's elements; FullState for whole values. Parallel distributes layers,
// sequences and experts over ranks (shale/nn.h: nn::Distribution).

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/data/sharded_parameter.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/comm/parallel/parallel_step.h"
