#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "shale/models/plan/time/stages.h"

namespace shale::models {

// Lower bounds of a layout's step time and of the bytes of its most loaded rank, and estimates of
// both, which decide which layouts are planned first. The default bounds nothing.
struct LayoutBound {
  double seconds = 0;
  int64_t bytes = 0;
  double likely_seconds = 0, likely_bytes = 0;
};

// Makes a task like the run's, but with a model of this many equal layers; null: not possible.
using MakeShorterTask = std::function<std::unique_ptr<Task>(int64_t layers)>;

// Bounds and estimates for the layouts of one run, from dry runs of one micro-batch with one
// pipeline stage and no data parallelism except that of expert-parallel ranks. If there are shorter
// tasks, models of one and of two layers are run, whose difference stands for each further layer.
//
// Fine bound: the dry run's time divided by the number of stages bounds the time of every layout
// with the same --tensor, --context, --expert, --micro-batch and --recompute; parameters and states
// divided by their shards bound its memory. The coarse bound uses a single dry run for all
// micro-batch sizes and recomputation modes: the time per sample is least in the largest
// micro-batch, as larger kernels are no less efficient, and recomputation only adds kernels.
//
// Estimates: the same parts for the most loaded stage, and in addition the pipeline's bubble
// (Narayanan et al., arXiv:2104.04473, section 2.2), the activations of its micro-batches in
// flight, and collectives that computation does not hide.
class LayoutBounds {
 public:
  // make_task, make_shorter and objects that `machines` refers to must outlive this. `ranks`:
  // number of ranks.
  LayoutBounds(const MakeTask& make_task, const MakeShorterTask& make_shorter, int ranks,
               const PlanMachines& machines);

  // Registers a resolved layout. Add every layout before the first call of coarse().
  void add(const RunConfig& layout);
  LayoutBound coarse(const RunConfig& layout);

  // Time and memory of one micro-batch and of one optimizer step.
  struct Work {
    double micro_s = 0, update_s = 0;
    double parameters = 0, gradients = 0, states = 0, activations = 0, rest = 0;  // bytes
    Work& add(const Work& other, double times);
  };
  // Input of fine(): rehearse() computes it, on any thread; learn() stores it.
  struct Rehearsed {
    bool is_possible = false;  // false: no bound is known for these layouts
    Work layer, outside;       // work of one layer; work outside of layers
  };
  using Key = std::tuple<int, int, int, int64_t, Recompute>;
  static Key key_of(const RunConfig& layout);
  bool knows(const Key& key) const { return rehearsed_.contains(key); }
  Rehearsed rehearse(const Key& key) const;
  void learn(const Key& key, const Rehearsed& found) { rehearsed_[key] = found; }
  LayoutBound fine(const RunConfig& layout);

 private:
  // Layouts that share a coarse bound: one dry run of `micro_batch` and `recompute` stands for all.
  struct Class {
    RunConfig layout;  // only its parallel sizes matter
    int64_t micro_batch = 0;
    Recompute recompute = Recompute::kFull;
  };
  using ClassKey = std::tuple<int, int, int>;
  using HostKey = std::tuple<int, int>;
  // A pipeline's ranks: numbers of layers, and shares of the model's cost.
  struct Split {
    std::vector<double> layers, cost;
  };
  // Minimum time per step of data-parallel collectives: in shard groups, and between replicas.
  struct Sharing {
    double sums = 0, gathers = 0, replicas = 0;  // seconds
  };

  void rehearse_classes();
  // Largest possible share of expert parameters in the parameters of one expert-parallel rank;
  // tensor ranks may shard all other parameters.
  double expert_share(const RunConfig& layout) const;
  TimedRank planned(RunConfig layout, Task& task, int64_t steps) const;
  // Minimum time per step of offload work that does not depend on micro-batches: copies in one
  // direction, or kernels on the host.
  double host_seconds(const RunConfig& layout) const;
  const Split& split_of(const RunConfig& layout);
  LayoutBound bound_of(const RunConfig& layout, const Rehearsed& of);
  double least_bytes(const RunConfig& layout, const Work& all) const;
  double least_seconds(const RunConfig& layout, const Work& all, const Sharing& sharing) const;
  double likely_bytes(const RunConfig& layout, const Rehearsed& of, const Split& split) const;
  double likely_seconds(const RunConfig& layout, const Work& all, const Sharing& sharing,
                        const Split& split) const;
  Sharing sharing_seconds(const RunConfig& layout, const Work& all) const;
  GroupSpread expert_group(const RunConfig& layout) const;
  double bandwidth_seconds(comm::CollectiveOp op, double bytes, const GroupSpread& group) const;
  const Class& class_of(const RunConfig& layout) const;
  // Returns the bytes that a rank holds of `bytes`, which --zero `stage` and higher stages shard.
  double sharded(const RunConfig& layout, double bytes, int stage) const;
  // Maximum number of shards of a parameter under --zero; tensor ranks shard experts too.
  double most_shares(const RunConfig& layout) const;
  int64_t shard_ranks(const RunConfig& layout) const;

  const MakeTask& make_task_;
  const MakeShorterTask& make_shorter_;
  const int ranks_;
  const PlanMachines machines_;
  // Parameter counts of the model: in units (which ZeRO-3 gathers and frees), in experts, in total.
  double in_units_ = 0, in_experts_ = 0, in_all_ = 0;
  double layers_ = 1;  // number of units
  const std::unique_ptr<Task> task_;
  const std::vector<nn::Piece> pieces_;
  std::map<ClassKey, Class> classes_;
  std::map<Key, Rehearsed> rehearsed_;
  std::map<HostKey, RunConfig> of_host_;  // layouts with offload, one of each key
  std::map<HostKey, double> host_s_;
  std::map<std::pair<int, int>, Split> splits_;  // by --pipeline and --pipeline-chunks
};

}  // namespace shale::models
