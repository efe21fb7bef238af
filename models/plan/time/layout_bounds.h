#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "shale/models/plan/time/plan_time.h"

namespace shale::models {

// Lower bounds of a layout's step and of what its most loaded rank holds. The default bounds
// nothing.
struct LayoutBound {
  double seconds = 0;
  int64_t bytes = 0;
  double likely_bytes = 0;  // an estimate of what it holds: says what to look at first
};

// Lower bounds of the layouts of one run, out of rehearsals of one micro-batch on one stage and
// without data parallelism but that of the ranks that experts are dealt to. What it takes, divided
// by the stages, is the least that any layout with the same --tensor, --context, --expert,
// --micro-batch and --recompute takes, and its parameters, gradients and states, as far as they are
// shared, are the least that it holds: the fine bound. The coarse one takes a single rehearsal for
// all micro-batches and recomputation: a sample takes least in the largest micro-batch, as kernels
// of more work are no less efficient, and computing again only adds kernels.
class LayoutBounds {
 public:
  using MakeTask = std::function<std::unique_ptr<Task>()>;
  // make_task, and what the machines refer to, outlive this. ranks: of the run.
  LayoutBounds(const MakeTask& make_task, int ranks, const PlanMachines& machines)
      : make_task_(make_task),
        ranks_(ranks),
        machines_{machines.cluster, machines.kernels, /*lists_memory=*/false} {}

  // All layouts that coarse() is asked for, resolved, before it is.
  void add(const RunConfig& layout);
  LayoutBound coarse(const RunConfig& layout);

  // What fine() needs: rehearse() finds it, on any thread; learn() keeps it.
  struct Rehearsed {
    bool is_possible = false;  // false: nothing is known of these layouts
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
  // Layouts that differ in nothing that a coarse bound looks at.
  struct Class {
    RunConfig layout;  // of which only the sizes count
    int64_t micro_batch = 0;
    Recompute recompute = Recompute::kFull;
  };
  // What does not depend on micro-batches, of all with the same --tensor, --expert and --offload.
  struct StepBound {
    double states = 0;  // bytes
    double host_s = 0;  // what copies in one direction take, or kernels on the host
  };
  using ClassKey = std::tuple<int, int, int>;
  using StepKey = std::tuple<int, int, bool>;

  void rehearse_classes();
  // Of the parameters of one of the ranks that experts are dealt to, those that are of experts, at
  // most: tensor ranks may share all others.
  double expert_share(const RunConfig& layout) const;
  TimedRank planned(RunConfig layout, Task& task, int64_t steps) const;
  static StepKey step_key(const RunConfig& layout);
  StepBound step_bound(const RunConfig& layout) const;
  LayoutBound bound_of(const RunConfig& layout, const Rehearsed& of) const;
  double least_bytes(const RunConfig& layout, const Rehearsed& of, const StepBound& step) const;
  double least_seconds(const RunConfig& layout, const Rehearsed& of, const StepBound& step) const;
  // What data parallelism's lane carries at least, in a step.
  struct Sharing {
    double sums = 0, gathers = 0;  // seconds
  };
  Sharing sharing_seconds(const RunConfig& layout, const Rehearsed& of) const;
  GroupSpread expert_group(const RunConfig& layout) const;
  double bandwidth_seconds(comm::CollectiveOp op, double bytes, const GroupSpread& group) const;
  const Class& class_of(const RunConfig& layout) const;
  int64_t micro_batches(const RunConfig& layout) const;
  // Ranks over which --zero divides a parameter at most: an expert's are tensor ranks too.
  double most_shares(const RunConfig& layout) const;
  int64_t shard_ranks(const RunConfig& layout) const;

  const MakeTask& make_task_;
  const int ranks_;
  const PlanMachines machines_;
  // Of the model's parameters, how many are in units, which stage 3 gathers and frees, in experts,
  // and all together.
  double in_units_ = 0, in_experts_ = 0, in_all_ = 0;
  std::map<ClassKey, Class> classes_;
  std::map<Key, Rehearsed> rehearsed_;
  std::map<StepKey, RunConfig> of_step_;  // of each a layout
  std::map<StepKey, StepBound> steps_;
};

}  // namespace shale::models
