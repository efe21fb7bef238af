#pragma once

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Measures the all-reduce of `group` in `context`'s device memory before training, in less than 50
// ms. The result is the bytes per second that a rank sends around a ring (ring_bytes), which
// compares with the speed of a link. A slow group is not an error, only a warning. It states the
// measured and the expected rate, and the rank, with its host, that took longest to receive.
//
// expected_bytes_per_s: 0: within one host, expects a small fraction of the rate at which the ranks
// copy memory concurrently. Between hosts there is no such reference, so the result is only logged.
// With 0, nothing is reported for devices, or if ranks share cores, because waits for a core say
// nothing about the transport.
//
// Does nothing in a group of one rank. Collective over `group`, which must have all ranks of
// `world`.
void check_bandwidth(comm::ProcessGroup& group, Context& context, const comm::World& world,
                     double expected_bytes_per_s = 0);

}  // namespace shale::models
