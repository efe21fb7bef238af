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

// How parameters are sharded, and gradients reduced.
struct DataParallelOptions {
  // Options of a unit, unless add_unit() says otherwise.
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  int64_t persist_below = 0;  // elements
  UnitOffload offload = {};
  // Options of the whole model.
  int stage = 0;              // 0 to 3, see ShardingOptions
  bool overlap = true;        // collectives run while this rank computes
  bool reproducible = false;  // losses do not depend on the number of ranks
  std::optional<kernels::BlockCode> gather_code = {}, reduce_code = {};  // see ShardingOptions
  bool gather_fp8 = false;                                               // see ShardingOptions
  int prefetch = 1;  // stage 3: units gathered ahead of the one in use
  // Of the initial values; none: Context::next_model_seed().
  std::optional<uint64_t> seed = {};
  // Share of the elements that `offload` is for, rounded up to whole units: first those that
  // forward reaches last, as their step has the most time. For models whose units are made
  // together.
  double offload_share = 1;

  UnitOptions unit() const;
  ShardingOptions sharding() const;
};

// Data parallelism over the ranks of a group, with as much of the training state sharded as the
// stage says (see FlatBuffer). It enters a model through its hooks alone: a unit's parameters are
// gathered before its forward and its backward and freed after them, and as soon as a unit's
// gradients are complete they are added over the ranks while backward goes on.
//
// The collectives of all ranks must come in one order. In stages 0 to 2 reductions are issued in
// that of the units, from the last to the first, then the root, which is how backward usually gets
// to them; a unit that is ready early waits. In stage 3 gathers order the ranks already, and
// reductions come where a unit's backward ends. What is left (parameters that a step did not use)
// is reduced as zeros when backward ends, so that ranks may use different parameters, though in
// stage 3 not different units.
//
// Gradients are sums over ranks, as they are over micro-batches: a loss is divided by what is
// counted on all ranks (mean_over_ranks()), not by what this rank counts.
//
// Several backwards in a step, of losses of their own, add up, and several graphs may wait for
// theirs: each backward that reaches the model ends with sums over all ranks, which all ranks take
// part in. In a reproducible run each is a tree of its own, and its micro-batches are those of
// begin_backward(). A backward that does not reach the model leaves it alone.
//
// From stage 1 on the forward of a unit's module must go through Module::run, so that hooks fire.
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
  // Gives all parameters of `model` memory and their initial values. `units`: see plan_units().
  // Model, context and groups must outlive this. Collective; throws CommError, naming the ranks, if
  // their models or options differ, and ConfigError for options that do not go together.
  DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
               const ShardGroups& groups, const DataParallelOptions& options);
  DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
               ProcessGroup& group, const DataParallelOptions& options)
      : DataParallel(model, units, context, ShardGroups{.shard = &group}, options) {}
  // With these units, as the parts of a model that one stage of a pipeline has: the rest gets no
  // memory. Chunks are numbered from 0 on.
  DataParallel(std::vector<UnitPlan> plans, Context& context, const ShardGroups& groups,
               const DataParallelOptions& options);
  // One to which units are added; inner ones first.
  DataParallel(Context& context, const ShardGroups& groups, const DataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Calls body(rank) for each mesh rank of this process (ShardGroups::hosted), each with its own
  // state of autograd; with one rank body(0).
  void run(const std::function<void(int rank)>& body) const;
  HostedRanks* hosted_ranks() const { return hooks_.ranks(); }  // null: this process is one

  // Makes a unit of what is left of a module's subtree. Collective.
  FlatUnit& add_unit(Module& module, const UnitOptions& options);
  // The unit around this module. Throws InternalError if it is none.
  FlatUnit& unit(const Module& module) const;
  const std::vector<std::unique_ptr<FlatUnit>>& units() const { return units_; }

  // What this rank's optimizer steps.
  const std::vector<OptimShard>& shards() const { return shards_; }

  // Before every backward of the micro-batches of one loss: the context's next backward is this
  // model's. Stages 0 and 1 add the gradients of all but the last locally; stages 2 and 3, and
  // reproducible runs, reduce all of them. Without a call each backward is a last one. Where units
  // are in several chunks, every backward reaches one chunk, and says which. Throws ConfigError
  // before the last one in a reproducible run whose micro-batches are not a power of two.
  void begin_backward(bool last, int chunk = 0) { sync_.begin_backward(last, chunk); }
  // After the last backward of a step: the gradients in shards() are complete when it returns.
  // Throws what a reduction threw. Needs no call on ranks that have had a last backward.
  void finish_gradients() { sync_.finish_gradients(); }
  // While true, backward adds to local gradients, which are whole, in every stage.
  // Throws ConfigError in a reproducible run.
  void set_no_sync(bool no_sync) { sync_.set_no_sync(no_sync); }

  // ---- For passes that are captured and replayed (runtime/tensor/graph.h) ----

  // Makes the compute stream wait for what the step before left on its way: parameters that stages
  // 1 and 2 gather. Before a forward is captured or replayed; in stage 3 it gathers itself.
  void finish_gathers();
  // What the host knows of the gradients: which have a value, whether they were reduced. Backward
  // decides by it what to queue, and changes it, but a replay does not: it wants the flags that the
  // capture began with, and the caller sets those that the capture ended with.
  std::vector<bool> gradient_flags();
  void set_gradient_flags(const std::vector<bool>& flags);

  // Of the next step: unless replicas are added up, each has the sum over its own ranks. Alike on
  // all ranks, between two steps.
  void set_replica_gradients(ReplicaGradients of) { shared_.replica_gradients = of; }
  // Lets replicas make local steps. `tier` outlives this. Throws what LocalSteps throws.
  void keep_local_steps(offload::HostTier& tier, const LocalStepsOptions& options);
  LocalSteps* local_steps() const { return local_steps_.get(); }  // null: there are none

  // optim::clip_grad_norm over the gradients of all ranks. Where replicas are not added up, each
  // measures its own gradient, a share times their number, and clips that; what is not finite on
  // one of them is so on all.
  void clip_grad_norm(float max_norm, optim::OutlierSkip* outliers = nullptr);
  // The sum over all ranks of what each counts. Collective; the host waits for it.
  double sum_over_ranks(double count) const;
  // A loss whose gradients add up to those of the mean over all ranks' samples. loss: the mean over
  // this rank's `weight` samples, a finite scalar; weights may differ, and be 0 on some ranks.
  // Collective; the host waits for it. Throws ConfigError unless the sum of weights is above 0, and
  // where several ranks share the layers (ShardGroups::tensor).
  Tensor mean_over_ranks(const Tensor& loss, double weight = 1) const;
  // The first parameter with a gradient that is not finite, on any rank; empty if there is none.
  // For reports: collective, and waits for the device.
  std::string first_non_finite();
  // Parameters that the last backward did not reach on this rank.
  std::vector<std::string> unused_parameters() const { return sync_.unused_parameters(); }

  // After the masters of all units were changed by other means than the optimizer: the next use
  // sees them.
  void masters_changed();

  // Gives all ranks the mean over the ranks of the buffers of which each has its own
  // (BufferRanks::kMean). Collective.
  void average_buffers();

  // Gathers all parameters, for a use outside of forward and backward; frees them again.
  void unshard();
  void reshard();

  // ---- The whole state (full_state.cpp, and full_state.h for one rank alone) ----
  // Values are f32 masters, or what frozen parameters have; ShardedParameter has those of one rank.
  // Collective unless said otherwise; from stage 1 on the ranks send each other their parts of a
  // unit at a time.

  // Writes rows [first_row, first_row + rows.size(0)) of a parameter, dense, f32, in host memory;
  // of a vector these are elements.
  using FillRows =
      std::function<void(const Parameter& parameter, int64_t first_row, const View& rows)>;
  // Sets every parameter: `fill` is called once for each of which this rank has a part, with the
  // rows that the part lies in. Not collective, but every rank must do it before the next use.
  void load(const FillRows& fill);
  // Calls visit(parameter, values) for every parameter, with dense f32 host values that live as
  // long as the call.
  void full_state(const std::function<void(const Parameter&, const View&)>& visit);
  // Copies the value of a parameter, whole, to dense f32 host memory. Moves its whole unit: of
  // several parameters use FullState.
  void read(const Parameter& parameter, const View& to);
  // The same as a tensor on the device.
  Tensor full_tensor(const Parameter& parameter);

  // The place of a parameter. Throws InternalError if it is not part of the model.
  struct Place {
    FlatBuffer* buffer;
    const FlatEntry* entry;
  };
  Place place_of(const Parameter& parameter) const;

  const DataParallelOptions& options() const { return options_; }
  const ShardingContext& shared() const { return shared_; }
  ShardingContext& shared() { return shared_; }
  double exposed_seconds() const { return shared_.exposed_seconds; }  // waiting, in all

  // The model that owns this is going away: nothing of it may be touched any more.
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
  std::vector<Buffer*> buffers_;  // that have their memory from this
  UnitHooks hooks_;
  UnitGathers gathers_;
  GradientSync sync_;
  std::unique_ptr<BackwardHooksScope> backward_hooks_;
  bool owned_by_model_ = false;
  std::unique_ptr<LocalSteps> local_steps_;
};

}  // namespace shale::comm
