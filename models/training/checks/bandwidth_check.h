#pragma once

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Measures the all-reduce of `group`, whose buffers are in `context`'s device memory, before
// training, in less than 50 ms: bytes per second that a rank sends around a ring (ring_bytes), the
// number that compares with the speed of a link. A group that is slower than expected is no error:
// a warning names both numbers and the rank, and its host, that took longest to receive.
//
// expected_bytes_per_s: 0 derives it where something is there to compare with: within one host a
// small part of what its ranks reach when all of them copy memory. There is nothing of the kind
// between hosts, where the result is logged for people to judge; for devices; and where ranks share
// cores, as the time that a rank waits for a core says nothing about transport. Does nothing in a
// group of one. Collective over `group`, which is of all ranks of `world`.
void check_bandwidth(comm::ProcessGroup& group, Context& context, const comm::World& world,
                     double expected_bytes_per_s);

}  // namespace shale::models
