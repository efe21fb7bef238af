#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/models/training/report/memory_ledger.h"

namespace shale::models {

// Memory reports of a run: memory.jsonl at the end (rank_memory.h) and, on rank 0 if requested, a
// profile of the first steps.
class MemoryReport {
 public:
  static constexpr int64_t kProfiledSteps = 3;

  // Starts recording if `profile` is not empty. profile: file to write (memory_profile.h).
  // `context` must outlive this.
  MemoryReport(Context& context, std::string profile);
  ~MemoryReport();

  // Call it when the model is allocated, before the first step.
  void watch(Module& model, const std::vector<Module*>& units);
  // Call it before a step, with the number of steps done since the start of the process.
  void begin_step(int64_t steps);
  // Writes the profile unless it has been written. Logs errors as warnings.
  void end_profile();

  // Writes memory.jsonl with all ranks into the run's folder, on rank 0. host: context of offloaded
  // memory; null: nothing is offloaded. Throws DiskError. Collective.
  void write(const std::string& folder, comm::ProcessGroup& group, Context* host) const;

 private:
  Context& context_;
  std::string profile_;  // empty: there is none, or it has been written
  std::optional<MemoryLedger> ledger_;
  std::optional<ModulePlaces> places_;
};

}  // namespace shale::models
