#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/results.h"
#include "shale/bench/support/train_loop.h"

namespace shale::bench {

// What training takes of the device's and the host's memory, one way to do it.
struct MemoryCase {
  TrainOptions options;
  int64_t parameters = 0;  // of the model
  int64_t device_peak = 0;  // bytes in use on the rank that had most
  int64_t host_peak = 0;    // bytes offloaded, on the rank that had most
  double step_seconds = 0;
  float loss = 0;
};

// Two steps of every combination of stage, precision, recompute and offload. Collective.
std::vector<MemoryCase> memory_sweep(const TrainOptions& base, comm::World& world);

// Every case beside the first, which keeps everything in fp32 on the device.
std::string memory_sweep_table(const std::vector<MemoryCase>& cases);
Json memory_sweep_rows(const std::vector<MemoryCase>& cases, int ranks);

}  // namespace shale::bench
