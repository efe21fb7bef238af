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

// Clock that times the steps of a dry-run rank. The rank reports kernels, collectives, copies and
// phases in issue order. Implemented by StepClock (plan/time/step_clock.h).
class RehearsalClock : public kernels::CallObserver,
                       public comm::SimulatedClock,
                       public PlanClock,
                       public offload::InlineStepper,
                       public StepObserver {
 public:
  // How the dry run executes kernels, to measure those of unknown duration.
  enum class Pass : uint8_t {
    // Runs each kernel several times when its kind is first called. Caches are warmer than in a
    // real step.
    kAtOnce,
    kLater,  // runs no kernels, because a later pass measures them
    // Runs the first few calls of each kind of kernel where they occur in the step, so that their
    // memory is mapped. Measures no times.
    kVisit,
    // Runs and times the first few calls of each kind of kernel where they occur in the step,
    // between the step's other kernels.
    kInPlace,
  };
  // Returns true if kernels really run and are measured.
  virtual bool measures() const = 0;
  virtual void set_pass(Pass pass) = 0;
  // Sets the compute stream of the device; null on the CPU.
  virtual void set_compute_stream(void* stream) = 0;
  // Returns the observer of kernels that work on host memory.
  virtual kernels::CallObserver& host_observer() = 0;
  virtual void begin_step(int64_t micro_batches) = 0;
  // Ends a step that represents a fraction `share` of the run's steps; 0: represents none.
  virtual void end_step(double share) = 0;
};

// Needs of one rank of a run, found by a dry run of its training steps on the CPU.
struct PlannedRank {
  RankMemory memory;
  std::string place;  // for example "pipeline 1, shard 3"; omits axes of size 1
  std::vector<MemoryLedger::Share> at_peak;  // device memory in use at the peak
  // Bytes of host memory that `memory` does not include: of a micro-batch, and of the copy of the
  // training state from which this rank writes a checkpoint.
  int64_t batch_bytes = 0, checkpoint_bytes = 0;
};

// Dry-runs the first steps of rank `rank` of `ranks`, with the allocator, tape, sharding,
// recomputation and offload of the run. The other ranks of its groups are simulated
// (comm/groups/group_simulated.h), kernels skip their work (kernels/dry_run.h), and memory consists
// of addresses only (runtime/tensor/plan_backend.h). So the peaks equal those of the run on the CPU
// to the byte. There are two exceptions: plans assume that all experts of an MoE receive the same
// number of tokens, and that other ranks are slow. The memory that the plan itself needs does not
// grow with the micro-batch, unless the clock measures kernels.
//
// `config` is resolved, with `threads` set. Stored weights are not loaded; reports, checkpoints and
// traces are off. clock: times the steps; null: plans memory only. lists_memory: fill in
// PlannedRank::at_peak, which takes time. Throws ConfigError for an invalid rank. Throws what the
// parts of a run throw for impossible options.
PlannedRank plan_rank(const RunConfig& config, Task& task, int rank, int ranks,
                      RehearsalClock* clock = nullptr, bool lists_memory = true);

// Returns true if peak memory depends on the speed of ranks. ZeRO-2 and ZeRO-3 free a gradient when
// its reduction completes, which may overlap backward. The run then needs at most the planned
// memory.
bool memory_depends_on_time(const RunConfig& config, int ranks);

}  // namespace shale::models
