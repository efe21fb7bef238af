#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/results.h"
#include "shale/bench/support/train_loop.h"

namespace shale::bench {

// Memory of the device and the host for one training configuration.
struct MemoryCase {
  TrainOptions options;
  int64_t parameters = 0;   // parameters of the model
  int64_t device_peak = 0;  // maximum over the ranks of bytes in use on the device
  int64_t host_peak = 0;    // maximum over the ranks of offloaded bytes
  double step_seconds = 0;
  float loss = 0;
};

// Runs two steps of every combination of ZeRO stage, precision, recompute and offload. All ranks
// must call it.
std::vector<MemoryCase> memory_sweep(const TrainOptions& base, comm::World& world);

// Returns a table that compares every case with the first case, which keeps everything in fp32 on
// the device.
std::string memory_sweep_table(const std::vector<MemoryCase>& cases);
Json memory_sweep_rows(const std::vector<MemoryCase>& cases, int ranks);

}  // namespace shale::bench
