#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/comm/process_group.h"
#include "shale/models/plan/remedies.h"
#include "shale/models/training/program.h"

namespace shale::models {

// GPU with its free bytes, and a name that is equal on all ranks that use it.
struct GpuMemory {
  std::string name;
  int64_t free = 0;
};

// Plans the run on every rank, and compares the sum of the needs of the ranks of each host, and of
// each GPU, with the memory available there (base/host_memory.h). Throws OutOfMemoryError on all
// ranks, with options that would fit, if it is not enough. A run that cannot be planned is not
// checked. gpu: that of this rank; nullopt: the rank computes in host memory. Collective.
void check_memory(const PlannedRun& planned, comm::ProcessGroup& group,
                  const std::optional<GpuMemory>& gpu);

// Makes a training program check the memory of its runs before they build their models, and suggest
// options if memory runs out later. `program` must outlive its runs.
void plan_memory(TrainingProgram& program);

}  // namespace shale::models
