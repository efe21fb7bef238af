#pragma once

#include <span>
#include <string>

#include "shale/base/timeline.h"

namespace shale::models {

// What a trace of some steps says, in words: how long a step takes and where its time goes, which
// kernels it is, what ranks wait for with nothing to compute, and which rank is late. Times are
// means over the ranks and steps of the trace. Throws DataError for a trace without whole steps.
std::string trace_report(std::span<const TraceRecord> ranks);

}  // namespace shale::models
