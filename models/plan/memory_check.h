#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/comm/process_group.h"
#include "shale/models/plan/remedies.h"
#include "shale/models/training/program.h"

namespace shale::models {

// GPU of a rank: its free bytes, and a name that is the same on all ranks that use it.
struct GpuMemory {
  std::string name;
  int64_t free = 0;
};

// Checks that the run fits into memory. Plans the run on every rank. For each host and each GPU,
// compares the memory that its ranks need together with the memory available (base/host_memory.h).
// If that is not enough, throws OutOfMemoryError on all ranks, with options that would fit. A run
// that cannot be planned is not checked. gpu: GPU of this rank; nullopt: the rank computes in host
// memory. Collective.
void check_memory(const PlannedRun& planned, comm::ProcessGroup& group,
                  const std::optional<GpuMemory>& gpu);

// Makes a training program check memory before a run builds its model. If a run later runs out of
// memory, its error suggests options. `program` must outlive its runs.
void plan_memory(TrainingProgram& program);

}  // namespace shale::models
