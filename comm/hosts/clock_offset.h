#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Time by which this rank's clock is ahead of rank 0's.
struct ClockOffset {
  int64_t ns = 0;
  int64_t error_ns = 0;  // maximum error; 0 on rank 0's host, which uses the same clock
};

// A clock in nanoseconds that all processes of a host share.
using HostClock = std::function<int64_t()>;

// Measures the offset of this rank's clock with some small all-gathers. An all-gather ends on no
// rank before all ranks have started it, which bounds the offset. Returns the middle of the bounds.
// Ranks with the same `host_identity` return the offset of the lowest of them. Collective, on a
// group for host memory.
ClockOffset measure_clock_offset(ProcessGroup& group, const std::string& host_identity,
                                 const HostClock& clock);

}  // namespace shale::comm
