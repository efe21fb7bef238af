#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "shale/models/plan/time/plan_time.h"

namespace shale::models {

// Lower bounds of a layout's step time and of the bytes of its most loaded rank. The default bounds
// nothing.
struct LayoutBound {
  double seconds = 0;
  int64_t bytes = 0;
  double likely_bytes = 0;  // estimate of the bytes; decides what is evaluated first
};

// Lower bounds for the layouts of one run, from dry runs of one micro-batch with one pipeline stage
// and no data parallelism except that of expert-parallel ranks. The dry run's time, divided by the
// number of stages, bounds every layout with the same --tensor, --context, --expert, --micro-batch
// and --recompute from below, and so do its parameters, gradients and states, divided by their
// shards: the fine bound. The coarse bound uses a single dry run for all micro-batch sizes and
// recomputation modes: the time per sample is least in the largest micro-batch, as larger kernels
// are no less efficient, and recomputation only adds kernels.
class LayoutBounds {
 public:
  using MakeTask = std::function<std::unique_ptr<Task>()>;
  // make_task and objects that `machines` refers to must outlive this. `ranks`: number of ranks.
  LayoutBounds(const MakeTask& make_task, int ranks, const PlanMachines& machines)
      : make_task_(make_task),
        ranks_(ranks),
        machines_{machines.cluster, machines.kernels, /*lists_memory=*/false} {}

  // Registers a resolved layout. Add every layout before the first call of coarse().
  void add(const RunConfig& layout);
  LayoutBound coarse(const RunConfig& layout);

  // Input of fine(): rehearse() computes it, on any thread; learn() stores it.
  struct Rehearsed {
    bool is_possible = false;  // false: no bound is known for these layouts
    double micro_s = 0, update_s = 0;
    double parameters = 0, gradients = 0, activations = 0;  // bytes
  };
  using Key = std::tuple<int, int, int, int64_t, Recompute>;
  static Key key_of(const RunConfig& layout);
  bool knows(const Key& key) const { return rehearsed_.contains(key); }
  Rehearsed rehearse(const Key& key) const;
  void learn(const Key& key, const Rehearsed& found) { rehearsed_[key] = found; }
  LayoutBound fine(const RunConfig& layout) const;

 private:
  // Layouts that share a coarse bound: one dry run of `micro_batch` and `recompute` stands for all.
  struct Class {
    RunConfig layout;  // only its parallel sizes matter
    int64_t micro_batch = 0;
    Recompute recompute = Recompute::kFull;
  };
  // Lower bounds of the costs that micro-batches do not change. Computed once for each combination
  // of --tensor, --expert and --offload.
  struct StepBound {
    double states = 0;  // optimizer states, in bytes
    double host_s = 0;  // time of copies in one direction, or of kernels on the host
  };
  using ClassKey = std::tuple<int, int, int>;
  using StepKey = std::tuple<int, int, bool>;

  void rehearse_classes();
  // Largest possible share of expert parameters in the parameters of one expert-parallel rank;
  // tensor ranks may shard all other parameters.
  double expert_share(const RunConfig& layout) const;
  TimedRank planned(RunConfig layout, Task& task, int64_t steps) const;
  static StepKey step_key(const RunConfig& layout);
  StepBound step_bound(const RunConfig& layout) const;
  LayoutBound bound_of(const RunConfig& layout, const Rehearsed& of) const;
  double least_bytes(const RunConfig& layout, const Rehearsed& of, const StepBound& step) const;
  double least_seconds(const RunConfig& layout, const Rehearsed& of, const StepBound& step) const;
  // Minimum time per step of data-parallel collectives.
  struct Sharing {
    double sums = 0, gathers = 0;  // seconds
  };
  Sharing sharing_seconds(const RunConfig& layout, const Rehearsed& of) const;
  GroupSpread expert_group(const RunConfig& layout) const;
  double bandwidth_seconds(comm::CollectiveOp op, double bytes, const GroupSpread& group) const;
  const Class& class_of(const RunConfig& layout) const;
  int64_t micro_batches(const RunConfig& layout) const;
  // Maximum number of shards of a parameter under --zero; tensor ranks too shard experts.
  double most_shares(const RunConfig& layout) const;
  int64_t shard_ranks(const RunConfig& layout) const;

  const MakeTask& make_task_;
  const int ranks_;
  const PlanMachines machines_;
  // Parameter counts of the model: in units (which ZeRO-3 gathers and frees), in experts, in total.
  double in_units_ = 0, in_experts_ = 0, in_all_ = 0;
  std::map<ClassKey, Class> classes_;
  std::map<Key, Rehearsed> rehearsed_;
  std::map<StepKey, RunConfig> of_step_;  // a layout for each key, to compute its bound
  std::map<StepKey, StepBound> steps_;
};

}  // namespace shale::models
