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
  // Kernels that the dry run executes, to measure those whose time is unknown.
  enum class Pass : uint8_t {
    // Repeats each kernel at the first call of its kind. Caches are warmer than in a real step.
    kAtOnce,
    kLater,  // runs no kernels; a later pass does
    // Runs the first few calls of each kind of kernel at their places in the step, so that their
    // memory is mapped. Measures no times.
    kVisit,
    // Runs and times the first few calls of each kind of kernel at their places in the step,
    // between the other kernels of the step.
    kInPlace,
  };
  // Returns true if kernels really run, to be measured.
  virtual bool measures() const = 0;
  virtual void set_pass(Pass pass) = 0;
  // Sets the compute stream of the device; null on the CPU.
  virtual void set_compute_stream(void* stream) = 0;
  // Returns the observer of kernels that work on host memory.
  virtual kernels::CallObserver& host_observer() = 0;
  virtual void begin_step(int64_t micro_batches) = 0;
  // Ends a step that represents this share of the run's steps; 0: none.
  virtual void end_step(double share) = 0;
};

// Needs of one rank of a run, found by a dry run of its training steps on the CPU.
struct PlannedRank {
  RankMemory memory;
  std::string place;                         // "pipeline 1, shard 3"; omits axes of size 1
  std::vector<MemoryLedger::Share> at_peak;  // device memory in use at the peak
  // Bytes of host memory besides `memory`: those of a micro-batch, and of the copy of the training
  // state from which a checkpoint of this rank is written.
  int64_t batch_bytes = 0, checkpoint_bytes = 0;
};

// Dry-runs the first steps of rank `rank` of `ranks` with the run's own allocator, tape, sharding,
// recomputation and offload. The other ranks of its groups are simulated
// (comm/groups/group_simulated.h), kernels skip their work (kernels/dry_run.h), and memory consists
// of addresses only (runtime/tensor/plan_backend.h). Peaks therefore equal those of the run on the
// CPU to the byte, without a formula. Exceptions: allocations that depend on data (MoE) assume that
// all experts receive the same number of tokens, and those that depend on other ranks' speed assume
// slow ranks. The memory that the plan itself allocates does not grow with the micro-batch, unless
// the clock measures kernels.
//
// `config` is resolved, with `threads` set. Stored weights are not loaded; reports, checkpoints and
// traces are off. clock: times the steps; null: memory only. lists_memory: fill in
// PlannedRank::at_peak, which takes time. Throws ConfigError for an invalid rank, and the
// exceptions of the run's own parts for impossible options.
PlannedRank plan_rank(const RunConfig& config, Task& task, int rank, int ranks,
                      RehearsalClock* clock = nullptr, bool lists_memory = true);

// Returns true if peak memory depends on the ranks' speed: ZeRO-2 and ZeRO-3 free a gradient when
// its reduction completes, which may overlap backward. Such a run needs at most the planned memory.
bool memory_depends_on_time(const RunConfig& config, int ranks);

}  // namespace shale::models
