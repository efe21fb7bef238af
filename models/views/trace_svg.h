#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shale/base/timeline.h"

namespace shale::models {

// A step of a trace as a picture (SVG): two rows a rank, time to the right. The upper one has
// what the host does: forwards, blue, and backwards, orange, each with its number in the step, the
// rest of the step grey, and red over them what it waits for. The lower one has what is under way
// between ranks: messages, light violet, and collectives, a darker one for each further group.
// `step` counts from 1; 0: the first of the trace. Throws ConfigError for a step that a rank lacks.
std::string trace_svg(std::span<const TraceRecord> ranks, int64_t step);

}  // namespace shale::models
