#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "shale/models/plan/time/stages.h"

namespace shale::models {

// Lower bounds of a layout's step time and of the bytes of the rank that needs the most. The
// estimates of both (likely_) decide which layouts are planned first. The default value bounds
// nothing.
struct LayoutBound {
  double seconds = 0;
  int64_t bytes = 0;
  double likely_seconds = 0, likely_bytes = 0;
};

// Makes a task like the run's, with a model of `layers` equal layers. Returns null if that is not
// possible.
using MakeShorterTask = std::function<std::unique_ptr<Task>(int64_t layers)>;

// Bounds and estimates for the layouts of one run. They come from dry runs of one micro-batch with
// one pipeline stage, and without data parallelism except among expert-parallel ranks. If
// MakeShorterTask is given, only models of one and two layers run, and their difference stands for
// each further layer.
//
// Fine bound: a dry run bounds all layouts with the same --tensor, --context, --expert,
// --micro-batch and --recompute. Its time divided by the number of stages bounds their time. Its
// parameters and states divided by the number of their shards bound their memory.
//
// Coarse bound: one dry run, with the largest micro-batch and the least recomputation, stands for
// all micro-batch sizes and recomputation modes. Larger kernels are no less efficient, so its time
// per sample is the least, and recomputation only adds kernels.
//
// Estimates use the same times and bytes for the stage with the most work. They add the pipeline's
// bubble (Narayanan et al., arXiv:2104.04473, section 2.2), the activations of micro-batches in
// flight, and the collectives that computation does not hide.
class LayoutBounds {
 public:
  // `make_task`, `make_shorter` and the objects to which `machines` refers must outlive this
  // object. ranks: number of ranks.
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
    bool is_possible = false;  // false: the dry run failed, so these layouts have no bound
    Work layer, outside;       // work of one layer; work outside of layers
  };
  using Key = std::tuple<int, int, int, int64_t, Recompute>;
  static Key key_of(const RunConfig& layout);
  bool knows(const Key& key) const { return rehearsed_.contains(key); }
  Rehearsed rehearse(const Key& key) const;
  void learn(const Key& key, const Rehearsed& found) { rehearsed_[key] = found; }
  LayoutBound fine(const RunConfig& layout);

 private:
  // Layouts with the same coarse bound, which comes from a dry run with `micro_batch` and
  // `recompute`.
  struct Class {
    RunConfig layout;  // only its parallel sizes matter
    int64_t micro_batch = 0;
    Recompute recompute = Recompute::kFull;
  };
  using ClassKey = std::tuple<int, int, int>;
  using HostKey = std::tuple<int, int>;
  // Division of the model among the ranks of a pipeline: number of layers, and fraction of the
  // cost, of each rank.
  struct Split {
    std::vector<double> layers, cost;
  };
  // Minimum time per step of data-parallel collectives. sums, gathers: within shard groups;
  // replicas: between replicas.
  struct Sharing {
    double sums = 0, gathers = 0, replicas = 0;  // seconds
  };

  void rehearse_classes();
  // Returns the largest possible fraction of expert parameters among the parameters of an
  // expert-parallel rank. Tensor ranks may shard all other parameters.
  double expert_share(const RunConfig& layout) const;
  TimedRank planned(RunConfig layout, Task& task, int64_t steps) const;
  // Returns the minimum time per step of offloading that does not depend on micro-batches: the
  // longest of the copies to the host, the copies from it, and the kernels on it.
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
  // Returns how many of `bytes` a rank holds if --zero `stage` and higher stages shard them.
  double sharded(const RunConfig& layout, double bytes, int stage) const;
  // Returns the maximum number of shards of a parameter with --zero. Tensor ranks shard experts
  // too.
  double most_shares(const RunConfig& layout) const;
  int64_t shard_ranks(const RunConfig& layout) const;

  const MakeTask& make_task_;
  const MakeShorterTask& make_shorter_;
  const int ranks_;
  const PlanMachines machines_;
  // Parameters of the model: in units, which ZeRO-3 gathers and frees one by one; in experts; in
  // total; trainable.
  double in_units_ = 0, in_experts_ = 0, in_all_ = 0, in_trained_ = 0;
  double layers_ = 1;  // number of units
  const std::unique_ptr<Task> task_;
  const std::vector<nn::Piece> pieces_;
  std::map<ClassKey, Class> classes_;
  std::map<Key, Rehearsed> rehearsed_;
  std::map<HostKey, RunConfig> of_host_;  // one layout with offload for each key
  std::map<HostKey, double> host_s_;
  std::map<std::pair<int, int>, Split> splits_;  // key: --pipeline, --pipeline-chunks
};

}  // namespace shale::models
