#pragma once

#include "shale/runtime/data/on_reading.h"

namespace shale::models {

// Ends the reading of data, with kInterrupted, when the process is asked to stop (StopSignals).
// Logs the file once when reading takes longer than two seconds.
OnReading watch_reading();

}  // namespace shale::models
