#pragma once

#include "shale/runtime/data/on_reading.h"

namespace shale::models {

// Makes a callback that ends the reading of data with kInterrupted when the process is asked to
// stop (StopSignals), and logs the file once if reading takes longer than two seconds.
OnReading watch_reading();

}  // namespace shale::models
