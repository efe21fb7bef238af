#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/models/training/report/memory_ledger.h"

namespace shale::models {

// What a run says of its memory: at its end memory.jsonl (rank_memory.h), and on rank 0 a profile
// of its first steps, if one is asked for.
class MemoryReport {
 public:
  static constexpr int64_t kProfiledSteps = 3;

  // profile: a file (memory_profile.h); empty: none. Records from now on. `context` outlives this.
  MemoryReport(Context& context, std::string profile);
  ~MemoryReport();

  // The model has its memory, and its steps begin.
  void watch(Module& model, const std::vector<Module*>& units);
  // The run has done `steps` steps since it was started, and begins the next.
  void begin_step(int64_t steps);
  // Writes the profile, unless that is done; what goes wrong is a warning.
  void end_profile();

  // Writes memory.jsonl of all ranks into the run's folder, which rank 0 has. host: of what is
  // offloaded, or null. Throws DiskError. Collective.
  void write(const std::string& folder, comm::ProcessGroup& group, Context* host) const;

 private:
  Context& context_;
  std::string profile_;  // empty: none, or it is written
  std::optional<MemoryLedger> ledger_;
  std::optional<ModulePlaces> places_;
};

}  // namespace shale::models
