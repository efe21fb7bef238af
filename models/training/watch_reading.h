#pragma once

#include <memory>

#include "shale/comm/process_group.h"
#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"

namespace shale::models {

// Makes a callback that ends the reading of data with kInterrupted if the process is asked to stop
// (StopSignals). If reading takes longer than two seconds, it logs the file once.
OnReading watch_reading();

// How a run reads its data. By default each process reads for itself.
struct DataReading {
  OnReading on_reading = watch_reading();
  OncePerHost once = {};
};

// Lets one rank of each host read the data for all ranks of the host with its working folder and
// mount namespace. They wait for it as long as it calls on_reading, and otherwise for the group's
// time-out. Collective.
DataReading read_once_per_host(comm::ProcessGroup& all);

}  // namespace shale::models
