#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/gradient_sync.h"
#include "shale/comm/parallel/data/unit_hooks.h"
#include "shale/comm/parallel/data/unit_order.h"
#include "shale/runtime/autograd/tape.h"

namespace shale::optim {
class OutlierSkip;
}

namespace shale::comm {

class LocalSteps;
struct LocalStepsOptions;

// Sharding of parameters and reduction of gradients.
struct DataParallelOptions {
  // Options of a unit; add_unit() can override them.
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  int64_t persist_below = 0;  // minimum size of a sharded parameter, in elements
  UnitOffload offload = {};
  // Options of the whole model.
  int stage = 0;              // 0 to 3, see ShardingOptions
  bool overlap = true;        // overlap collectives with computation
  bool reproducible = false;  // make losses independent of the number of ranks
  std::optional<kernels::BlockCode> gather_code = {}, reduce_code = {};  // see ShardingOptions
  bool gather_fp8 = false;                                               // see ShardingOptions
  int prefetch = 1;  // stage 3: units to gather ahead of the current one
  // Seed of the initial values; nullopt: Context::next_model_seed().
  std::optional<uint64_t> seed = {};
  // Fraction of the elements to offload, rounded up to whole units. The units that forward reaches
  // last are offloaded first, because their optimizer step has the most time. A value below 1 needs
  // a constructor that takes all units.
  double offload_share = 1;

  UnitOptions unit() const;
  ShardingOptions sharding() const;
};

// Data parallelism over the ranks of a group. `stage` selects how much of the training state is
// sharded (see FlatBuffer). It works through module hooks only: a unit's parameters are gathered
// before its forward and its backward and freed after them. When a unit's gradients are complete,
// they are reduced over the ranks while backward continues.
//
// The collectives of all ranks must have the same order. In stages 0 to 2 units are reduced from
// the last to the first, then the root. This is usually the order of backward; a unit that is ready
// early waits. In stage 3 gathers already fix the order, and a unit is reduced at the end of its
// backward. Parameters that a step did not use are reduced as zeros when backward ends. Ranks may
// therefore use different parameters, but in stage 3 they must use the same units.
//
// Gradients are sums over ranks and over micro-batches. A loss must therefore be divided by the
// count over all ranks (mean_over_ranks()), not by this rank's count.
//
// A step may have several backwards, each of another loss; their gradients add up. Several graphs
// may wait for their backward. Each backward that reaches the model ends with reductions, in which
// all ranks take part. In a reproducible run each backward is a separate sum tree over the
// micro-batches that begin_backward() announced. A backward that does not reach the model has no
// effect.
//
// From stage 1 on, the forward of a unit's module must use Module::run, so that hooks are called.
//
//   DataParallel parallel(model, model.blocks(), context, group, {.stage = 2});
//   optim::AdamW optimizer(parallel.shards(), {...});
//   for each step:
//     for each micro-batch: parallel.begin_backward(is_last); backward(loss);
//     parallel.finish_gradients();  // the sum over ranks and micro-batches
//     parallel.clip_grad_norm(1);
//     optimizer.step(); optimizer.zero_grad();
class DataParallel {
 public:
  // Allocates all parameters of `model` and writes their initial values. `units`: see plan_units().
  // Model, context and groups must outlive this object. Throws CommError, naming the ranks, if
  // their models or options differ, and ConfigError for incompatible options. Collective.
  DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
               const ShardGroups& groups, const DataParallelOptions& options);
  DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
               ProcessGroup& group, const DataParallelOptions& options)
      : DataParallel(model, units, context, ShardGroups{.shard = &group}, options) {}
  // Uses the given units only, such as those of one pipeline stage. Parameters outside these units
  // get no memory. UnitPlan::chunk must count from 0.
  DataParallel(std::vector<UnitPlan> plans, Context& context, const ShardGroups& groups,
               const DataParallelOptions& options);
  // Starts without units; call add_unit() for inner modules first.
  DataParallel(Context& context, const ShardGroups& groups, const DataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Calls body(rank) for each mesh rank in this process (ShardGroups::hosted), with that rank's
  // autograd state. Calls body(0) if there is only one.
  void run(const std::function<void(int rank)>& body) const;
  HostedRanks* hosted_ranks() const { return hooks_.ranks(); }  // null if there is one mesh rank

  // Makes a unit of the parameters in a module's subtree that are not in a unit yet. Collective.
  FlatUnit& add_unit(Module& module, const UnitOptions& options);
  // Returns the unit of this module. Throws InternalError if it is not a unit.
  FlatUnit& unit(const Module& module) const;
  const std::vector<std::unique_ptr<FlatUnit>>& units() const { return units_; }

  // This rank's shards, for the optimizer.
  const std::vector<OptimShard>& shards() const { return shards_; }

  // Announces that the context's next backward belongs to this model. Call it before every backward
  // of the micro-batches of one loss. In stages 0 and 1 the gradients of all micro-batches but the
  // last are added locally. Stages 2 and 3, and reproducible runs, reduce the gradients of each
  // micro-batch. A backward without this call counts as that of the last micro-batch. If there are
  // several chunks, the backward reaches only chunk `chunk`. A reproducible run needs 2^n
  // micro-batches: throws ConfigError before the last one otherwise.
  void begin_backward(bool last, int chunk = 0) { sync_.begin_backward(last, chunk); }
  // Call it after the last backward of a step. On return the gradients in shards() are complete.
  // Throws the error of a failed reduction. Ranks that had a last backward may omit the call.
  void finish_gradients() { sync_.finish_gradients(); }
  // true: backward adds to local, unsharded gradients in every stage and does not reduce them.
  // Throws ConfigError in a reproducible run.
  void set_no_sync(bool no_sync) { sync_.set_no_sync(no_sync); }

  // ---- For passes that are captured and replayed (runtime/tensor/graph.h) ----

  // Makes the compute stream wait for parameters that stages 1 and 2 gather after an optimizer
  // step. Call it before a forward is captured or replayed. In stage 3 the graph has its own
  // gathers.
  void finish_gathers();
  // Flags of the gradients on the host: which have a value, and which are reduced. Backward reads
  // and changes the flags, but a replayed graph does not. Before a replay they must be those from
  // the start of the capture. After it the caller must set those from the end of the capture.
  std::vector<bool> gradient_flags();
  void set_gradient_flags(const std::vector<bool>& flags);

  // Chooses the gradients that the replicas use in the next step: the sum over all replicas, or
  // each replica's own. Must be the same on all ranks; call it between two steps.
  void set_replica_gradients(ReplicaGradients of) { shared_.replica_gradients = of; }
  // Enables local steps of replicas. `tier` must outlive this. Throws what LocalSteps throws.
  void keep_local_steps(offload::HostTier& tier, const LocalStepsOptions& options);
  LocalSteps* local_steps() const { return local_steps_.get(); }  // null: no local steps

  // Clips by the norm of the gradients of all ranks (optim::clip_grad_norm). If gradients are not
  // added over replicas, each replica clips by the norm of its own gradient; with
  // ReplicaGradients::kShare, by that norm times the number of replicas. A non-finite value on one
  // replica counts for all replicas.
  void clip_grad_norm(float max_norm, optim::OutlierSkip* outliers = nullptr);
  // Adds the counts of all ranks. Collective; the host waits for the sum.
  double sum_over_ranks(double count) const;
  // Returns a scaled loss. Its gradients, added over the ranks, are those of the mean over all
  // ranks' samples. loss: the mean over this rank's `weight` samples, a finite scalar. Weights may
  // differ between ranks, and may be 0 on some. Throws ConfigError unless the sum of weights is
  // above 0, and with tensor parallelism (ShardGroups::tensor). Collective; the host waits for it.
  Tensor mean_over_ranks(const Tensor& loss, double weight = 1) const;
  // Returns the name of the first parameter with a non-finite gradient on any rank; empty if none.
  // For reports, because it waits for the device. Collective.
  std::string first_non_finite();
  // Names of the parameters that the last backward did not reach on this rank.
  std::vector<std::string> unused_parameters() const { return sync_.unused_parameters(); }

  // Call it after changing the masters of all units without the optimizer, so that the next use of
  // the parameters sees the change.
  void masters_changed();

  // Each rank has its own values of some module buffers (BufferRanks::kMean). Replaces these values
  // by their mean over the ranks. Collective.
  void average_buffers();

  // unshard() gathers all parameters for use outside of forward and backward. reshard() frees them.
  void unshard();
  void reshard();

  // ---- The whole state (full_state.cpp; full_state.h for one rank alone) ----
  // Values are f32 masters, or the stored values of frozen parameters; ShardedParameter has this
  // rank's values. Collective unless stated otherwise; from stage 1 on the ranks exchange the parts
  // of one unit at a time.

  // Writes rows of a parameter, from `first_row` on, to `rows`: dense, f32, in host memory. The
  // rows of a vector are its elements.
  using FillRows =
      std::function<void(const Parameter& parameter, int64_t first_row, const View& rows)>;
  // Sets the values of all parameters. Calls `fill` for the rows of each parameter that contain a
  // part that this rank has. Not collective, but every rank must call it before the next use.
  void load(const FillRows& fill);
  // Calls visit(parameter, values) for every parameter. The values are dense, f32, in host memory,
  // and valid during the call.
  void full_state(const std::function<void(const Parameter&, const View&)>& visit);
  // Copies the whole value of a parameter to dense f32 host memory. Each call gathers a whole unit,
  // so use FullState for several parameters.
  void read(const Parameter& parameter, const View& to);
  // Like read(), but returns a tensor on the device.
  Tensor full_tensor(const Parameter& parameter);

  // Location of a parameter. Throws InternalError if it is not part of the model.
  struct Place {
    FlatBuffer* buffer;
    const FlatEntry* entry;
  };
  Place place_of(const Parameter& parameter) const;

  const DataParallelOptions& options() const { return options_; }
  const ShardingContext& shared() const { return shared_; }
  ShardingContext& shared() { return shared_; }
  // time that the host has waited for collectives
  double exposed_seconds() const { return shared_.exposed_seconds; }

  // Call it when the model that owns this object is being destroyed. The destructor then leaves the
  // model's modules alone.
  void release() { owned_by_model_ = true; }

 private:
  void install(std::vector<UnitPlan> plans);
  FlatUnit& install(const UnitPlan& plan, const UnitOptions& options);
  void bind_buffers(const Module& module);
  void order_units();
  ProcessGroup* gradient_holders() const;

  DataParallelOptions options_;
  ShardingContext shared_;
  std::vector<std::unique_ptr<FlatUnit>> units_;
  std::set<const Parameter*> taken_;
  std::vector<OptimShard> shards_;
  std::vector<Buffer*> buffers_;  // buffers that this object allocated
  UnitHooks hooks_;
  UnitGathers gathers_;
  GradientSync sync_;
  std::unique_ptr<BackwardHooksScope> backward_hooks_;
  bool owned_by_model_ = false;
  bool has_provider_ = false;  // the allocator takes this model's memory from the group
  std::unique_ptr<LocalSteps> local_steps_;
};

}  // namespace shale::comm
