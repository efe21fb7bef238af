#pragma once

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Measures the all-reduce of `group` in `context`'s device memory before training, in less than 50
// ms: bytes per second that a rank sends around a ring (ring_bytes), which compares with the speed
// of a link. A group that is slower than expected is not an error: a warning gives both numbers and
// the rank, with its host, that took longest to receive.
//
// expected_bytes_per_s: 0 derives it within one host, as a small share of the ranks' rate of
// concurrent memory copies. With 0, the result is only logged between hosts, where there is no such
// reference, and nothing is reported for devices or if ranks share cores, because waits for a core
// say nothing about the transport. Does nothing in a group of one. Collective over `group`, which
// has all ranks of `world`.
void check_bandwidth(comm::ProcessGroup& group, Context& context, const comm::World& world,
                     double expected_bytes_per_s = 0);

}  // namespace shale::models
