#pragma once

#include <span>
#include <string>

#include "shale/base/timeline.h"

namespace shale::models {

// Describes a trace of some steps: the time of a step and its parts, kernels, exposed
// communication, and late ranks. Times are means over the ranks and steps of the trace. Throws
// DataError for a trace without complete steps.
std::string trace_report(std::span<const TraceRecord> ranks);

}  // namespace shale::models
