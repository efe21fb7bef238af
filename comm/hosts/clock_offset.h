#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Time by which this rank's clock is ahead of rank 0's.
struct ClockOffset {
  int64_t ns = 0;
  int64_t error_ns = 0;  // maximum error; 0: both ranks use the same clock
};

// Clock in nanoseconds, the same for all processes of a host.
using HostClock = std::function<int64_t()>;

// Compares the ranks' clocks with some small all-gathers: none ends on a rank before all ranks have
// started it, which bounds the offset. Returns the middle of the bounds. Ranks of one host,
// identified by `host_identity`, share the offset of the lowest of them. Collective, on a group for
// host memory.
ClockOffset measure_clock_offset(ProcessGroup& group, const std::string& host_identity,
                                 const HostClock& clock);

}  // namespace shale::comm
