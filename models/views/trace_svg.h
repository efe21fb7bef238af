#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shale/base/timeline.h"

namespace shale::models {

// Draws a step of a trace as SVG. Time goes to the right, and each rank has two rows. The upper row
// shows the host: forwards in blue and backwards in orange, numbered within the step, waits in red,
// and the rest of the step in grey. The lower row shows communication in flight: messages in light
// violet, and collectives in a darker shade for each further group. step: counts from 1; 0: the
// first step of the trace. Throws ConfigError if a rank does not have the step.
std::string trace_svg(std::span<const TraceRecord> ranks, int64_t step);

}  // namespace shale::models
