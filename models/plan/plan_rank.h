#pragma once

#include <string>
#include <vector>

#include "shale/comm/groups/simulated_clock.h"
#include "shale/models/training/report/memory_ledger.h"
#include "shale/models/training/report/rank_memory.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/task.h"
#include "shale/runtime/offload/optimizer_offload.h"
#include "shale/runtime/tensor/plan_clock.h"

namespace shale::models {

// Times the steps of a rehearsed rank: it is told of kernels, collectives, copies and phases in the
// order in which the rank would run them. StepClock (plan/time/step_clock.h) implements it.
class RehearsalClock : public kernels::CallObserver,
                       public comm::SimulatedClock,
                       public PlanClock,
                       public offload::InlineStepper,
                       public StepObserver {
 public:
  // Where kernels run whose time is to be measured.
  enum class Pass : uint8_t {
    // Where each kind is first called, again and again. That finds more in caches than a step does.
    kAtOnce,
    kLater,  // nowhere yet
    // In their places in the step, the first ones of each kind, so that memory has its pages. They
    // get no time.
    kVisit,
    // In their places, between the kernels that the step has there, and are timed.
    kInPlace,
  };
  // Whether kernels run for real, to be measured.
  virtual bool measures() const = 0;
  virtual void set_pass(Pass pass) = 0;
  // `stream` of the device; null on the CPU.
  virtual void set_compute_stream(void* stream) = 0;
  // Is told of the kernels that work on the host's memory.
  virtual kernels::CallObserver& host_observer() = 0;
  virtual void begin_step(int64_t micro_batches) = 0;
  // Ends a step that stands for this share of the run's steps; 0: for none.
  virtual void end_step(double share) = 0;
};

// What one rank of a run would need, found by running its training steps on the CPU without
// computing them.
struct PlannedRank {
  RankMemory memory;
  std::string place;                         // "pipeline 1, shard 3", the axes longer than 1
  std::vector<MemoryLedger::Share> at_peak;  // of the device's memory
};

// Runs the first steps of rank `rank` of `ranks`: the run's own allocator, tape, sharding,
// recomputation and offload, over a group of which no other rank exists
// (comm/groups/group_simulated.h), with kernels that skip their work (kernels/dry_run.h), in memory
// that is addresses only (runtime/tensor/plan_backend.h). So peaks are those of the run on the CPU,
// to the byte, and need no formula; where a run allocates as its data says, in mixtures of experts,
// they are those of tokens that all experts get as many of, and where it depends on other ranks'
// speed, those beside slow ranks.
//
// `config` is resolved, with `threads` given. Stored weights are not loaded, and what only looks at
// a run (reports, checkpoints, traces) is left out. clock: times the steps; null: only memory
// counts. lists_memory: fill in PlannedRank::at_peak, which takes time. Throws ConfigError for a
// rank that is none, and what the run's own parts throw for options that cannot be.
PlannedRank plan_rank(const RunConfig& config, Task& task, int rank, int ranks,
                      RehearsalClock* clock = nullptr, bool lists_memory = true);

// Whether a run's memory depends on how fast the ranks are: stages 2 and 3 give back a gradient
// when its sum is done, if that is beside backward. A run then needs at most what is planned.
bool memory_depends_on_time(const RunConfig& config, int ranks);

}  // namespace shale::models
