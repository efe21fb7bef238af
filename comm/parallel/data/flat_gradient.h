#pragma once

#include <functional>

#include "shale/comm/parallel/data/coded_collectives.h"
#include "shale/comm/parallel/data/gradient_accumulator.h"

namespace shale::comm {

// The sum of a buffer's gradient over the ranks: the collectives of one reduction.
class GradientReduction {
 public:
  explicit GradientReduction(const BufferSpec& spec) : spec_(spec), coded_(spec) {}
  ~GradientReduction();

  // Adds the gradients of what every tensor rank has, each of its own share of the rows: a binary
  // tree over the ranks of this process, then over the processes. All get the sum. Comes first.
  void start_repeated(const Tensor& grad);
  // Starts the sum of `whole` over the ranks that share it, and over replicas, to `sum`: this
  // rank's part, or `whole` itself (BufferSpec::sums_everywhere()).
  void start(const Tensor& whole, const Tensor& sum);
  bool is_running() const { return sum_.defined(); }
  bool is_done() const { return reduction_.done() && replicas_.done(); }
  Tensor finish();  // waits, and returns the sum

 private:
  Work start_sum(const Tensor& whole, const Tensor& sum, const CollectiveOptions& options);

  const BufferSpec& spec_;
  CodedReduceScatter coded_;
  Tensor sum_;      // while it is on its way
  Work repeated_;   // over ShardGroups::tensor, of what every rank has
  Work reduction_;  // then over ShardGroups::shard
  Work replicas_;   // then over ShardGroups::replicate
};

// The gradient of a flat buffer whose parameters are trained, through a step: backward writes it
// (UnshardedGradient), ranks add it up (GradientReduction), and what several backwards leave is
// added up (GradientAccumulator).
class FlatGradient {
 public:
  // Gives `shard` its gradient. Both outlive this. Throws InternalError for a parameter that is in
  // another buffer already.
  FlatGradient(const BufferSpec& spec, OptimShard& shard);
  void detach() { unsharded_.detach(); }  // the parameters know nothing of this any more

  const FlatLayout& layout() const { return spec_.layout; }
  // For each parameter, when its gradient is complete in a backward.
  void add_ready_hook(const std::function<void(const FlatEntry&)>& ready) {
    unsharded_.add_ready_hook(ready);
  }
  // A backward of the context begins, and ends, which may reach these parameters.
  void prepare_backward();
  void end_backward();
  // One that does has reached its first.
  void begin_backward() { told_complete_ = false; }
  // Starts to add the gradients over the ranks; those that no backward reached count as zero. From
  // here to finish_reduce() nothing may be added.
  void start_reduce();
  bool reduction_done() const { return reduction_.is_done(); }
  void finish_reduce(bool last);  // of the step
  // After the last reduction of a step: the shard's gradient is the sum over micro-batches and
  // ranks.
  void finish_step();
  // In place of reductions, for a rank that is alone: zeroes what no backward has reached.
  void finish_alone();

  // Adds that of the other use of a table, which `apart` has and loses, after both were reduced.
  void add(FlatGradient& apart);
  // The same, where the other use is on another stage: adds up what the ranks of `stages` have.
  void add_over(ProcessGroup& stages);

  // Which gradients have a value: of the shard, of each parameter; whether that is a sum.
  void for_each_flag(const std::function<void(bool&)>& visit) { accumulator_.for_each_flag(visit); }

 private:
  void keep_sum();
  void tell_complete(const Event& arrived);

  const BufferSpec& spec_;
  OptimShard& shard_;
  UnshardedGradient unsharded_;
  GradientAccumulator accumulator_;
  GradientReduction reduction_;
  bool keeps_aside_ = false;    // the next gradient is the first after a sum
  bool told_complete_ = false;  // in this backward, to shard_.fence
};

}  // namespace shale::comm
