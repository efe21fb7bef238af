#pragma once

#include <memory>

#include "shale/comm/process_group.h"
#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"

namespace shale::models {

// Makes a callback that ends the reading of data with kInterrupted when the process is asked to
// stop (StopSignals), and logs the file once if reading takes longer than two seconds.
OnReading watch_reading();

// How the data of a run is read; by default each process reads it for itself.
struct DataReading {
  OnReading on_reading = watch_reading();
  OncePerHost once = {};
};

// Lets one rank of each host read data for the others of the host that have its working folder and
// mount namespace. They wait without a limit for as long as on_reading is called, else for the
// group's time-out. Collective.
DataReading read_once_per_host(comm::ProcessGroup& all);

}  // namespace shale::models
