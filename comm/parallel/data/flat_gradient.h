#pragma once

#include <functional>

#include "shale/comm/parallel/data/coded_collectives.h"
#include "shale/comm/parallel/data/gradient_accumulator.h"

namespace shale::comm {

// Reduces a buffer's gradient over the ranks: the collectives of one sum.
class GradientReduction {
 public:
  explicit GradientReduction(const BufferSpec& spec) : spec_(spec), coded_(spec) {}
  ~GradientReduction();

  // Adds the gradients of parameters that every tensor rank has, over the tensor ranks: as a binary
  // tree over those of this process, then over the processes. Every rank gets the sum. Call it
  // before start().
  void start_repeated(const Tensor& grad);
  // Starts to add `whole` over the ranks that share it, and over replicas. `sum` receives the
  // result: it is this rank's part of `whole`, or `whole` itself (BufferSpec::sums_everywhere()).
  void start(const Tensor& whole, const Tensor& sum);
  bool is_running() const { return sum_.defined(); }
  bool is_done() const { return reduction_.done() && replicas_.done(); }
  Tensor finish();  // waits and returns the sum

 private:
  Work start_sum(const Tensor& whole, const Tensor& sum, const CollectiveOptions& options);

  const BufferSpec& spec_;
  CodedReduceScatter coded_;
  Tensor sum_;      // defined while the reduction is running
  Work repeated_;   // sum over ShardGroups::tensor of parameters that every tensor rank has
  Work reduction_;  // sum over ShardGroups::shard, starts after repeated_
  Work replicas_;   // sum over ShardGroups::replicate, starts after reduction_
};

// Gradient of a flat buffer of trainable parameters during a step: backward writes it
// (UnshardedGradient), the ranks' gradients are added (GradientReduction), and the sums of several
// backwards are accumulated (GradientAccumulator).
class FlatGradient {
 public:
  // Sets the gradient of `shard`. `spec` and `shard` must outlive this object. Throws InternalError
  // for a parameter that is already in another buffer.
  FlatGradient(const BufferSpec& spec, OptimShard& shard);
  void detach() { unsharded_.detach(); }  // disconnects the parameters

  const FlatLayout& layout() const { return spec_.layout; }
  // Calls `ready` for each parameter when its gradient is complete in a backward.
  void add_ready_hook(const std::function<void(const FlatEntry&)>& ready) {
    unsharded_.add_ready_hook(ready);
  }
  // Call prepare_backward() before, and end_backward() after, each backward of the model's Context,
  // even if it may not reach this model.
  void prepare_backward();
  void end_backward();
  // Call it when a backward of the Context reaches this model.
  void begin_backward() { told_complete_ = false; }
  // Starts the sum over the ranks. Parameters that no backward reached count as zero. Do not add
  // gradients until finish_reduce().
  void start_reduce();
  bool reduction_done() const { return reduction_.is_done(); }
  void finish_reduce(bool last);  // last: no other reduction follows in this step
  // Call it after the last reduction of a step. The shard's gradient is then the sum over
  // micro-batches and ranks.
  void finish_step();
  // Replaces a reduction if there is only one rank. Zeroes gradients that no backward has reached.
  void finish_alone();

  // Adds `apart`, the gradient of tied tables' second use, and clears it. Both must be reduced.
  void add(FlatGradient& apart);
  // Adds the gradients of a table's uses in several pipeline stages, over the ranks of `stages`.
  void add_over(ProcessGroup& stages);

  // Visits flags of the shard and of its parameters, which say if a gradient exists and if it is a
  // sum over ranks.
  void for_each_flag(const std::function<void(bool&)>& visit) { accumulator_.for_each_flag(visit); }

 private:
  void keep_sum();
  void tell_complete(const Event& arrived);

  const BufferSpec& spec_;
  OptimShard& shard_;
  UnshardedGradient unsharded_;
  GradientAccumulator accumulator_;
  GradientReduction reduction_;
  bool keeps_aside_ = false;    // copy the current sum before a gradient is added
  bool told_complete_ = false;  // shard_.fence knows that the gradient of this backward is complete
};

}  // namespace shale::comm
