#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_layout.h"
#include "shale/comm/parallel/data/gradient_counter.h"
#include "shale/comm/parallel/data/host_gradient.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/optim/shard.h"

namespace shale {
struct LeafState;
}

namespace shale::comm {

// How the tables of a buffer are used, which an embedding and the output layer may share.
enum class TableUse : uint8_t {
  kOnly,   // there is no other use, or its gradient goes to the same place
  kTied,   // the gradient of another use, which is elsewhere, is added in the end
  kApart,  // that other use: a gradient, for values that another buffer has
};

// Traits by which the parameters of a unit share a buffer: those that are kept alike do.
struct BufferTraits {
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  bool trainable = true;
  bool persistent = false;  // stage 3 keeps them whole
  TableUse use = TableUse::kOnly;
  bool repeated = false;     // on every leaf of a model that is cut (nn/sharding.h)
  bool of_experts = false;   // of which ranks have different ones (ShardGroups::experts)
  UnitOffload offload = {};  // of trainable parameters
  bool in_codes = false;     // what ShardingOptions says of codes is for these
  // Of products of fp8 that alone read these, which are gathered as their numbers; else kPlain.
  Operands operands = Operands::kPlain;
  friend auto operator<=>(const BufferTraits&, const BufferTraits&) = default;
};

// Parameters one after another in flat buffers: their values, f32 masters and gradients, each whole
// or this rank's shard of it, as the stage says.
//
//   stage 0     values, masters and gradients are whole
//   stages 1, 2 values are whole, but after an optimizer step only this rank's part is up to date
//               until it is gathered; masters are shards. f32 values are their own masters.
//   stage 3     the masters' shard is all there is; the values are gathered from it, cast to the
//               compute dtype first, into a buffer that lives while the parameters are in use.
// One rank has all shards of a small buffer (FlatLayout::owner): sums and values go from and to it.
// Masters may live in another context than the rest: then they are stepped there, and `compute` of
// the shard, on the device, follows them.
// Whole gradients live throughout in stages 0 and 1, from the first gradient of a backward to the
// end of their reduction in stages 2 and 3. In stages 0 and 1 a sum over ranks takes their place,
// which another backward of the step keeps aside from its first gradient on, and adds to its own.
// Frozen parameters have values only. What every leaf of a model has lies leaf after leaf, and its
// gradients are added over the tensor ranks first.
//
// While the values are not up to date, the parameters have no memory: using one is an error.
class FlatBuffer {
 public:
  // Allocates, and writes initial values. Throws InternalError for a parameter that is in another
  // buffer already.
  FlatBuffer(ShardingContext& shared, std::string name, const BufferTraits& traits,
             const std::vector<Parameter*>& parameters);
  ~FlatBuffer();  // collectives in flight come first
  FlatBuffer(const FlatBuffer&) = delete;
  FlatBuffer& operator=(const FlatBuffer&) = delete;
  void detach();  // the parameters know nothing of this any more

  const FlatLayout& layout() const { return layout_; }
  bool trainable() const { return traits_.trainable; }
  TableUse use() const { return traits_.use; }
  bool of_experts() const { return traits_.of_experts; }
  // The ranks that share it.
  ProcessGroup& ranks() const { return shared_.shard(traits_.of_experts); }

  // ---- Values ----
  void fetch_masters();  // of a disk, so that start_unshard() need not wait for it
  void start_unshard();  // starts the gather, unless values are up to date or on their way
  void unshard();        // the same, and waits: the parameters can be used
  void finish_gather();  // unshard(), of values that are whole between two steps
  // Frees what stage 3 gathered; to_small_group: but keeps a shard of ShardGroups::reshard, and
  // what has an owner.
  void reshard(bool to_small_group);
  // After this rank's masters were changed by other means than the optimizer.
  void masters_changed();

  // Waits for a step that is still under way off the device. Before values or masters are used
  // other than by unshard().
  void wait_for_step() const;

  // ---- Gradients, of trainable parameters ----
  // For each parameter, when its gradient is complete in a backward.
  void add_ready_hook(const std::function<void(const FlatEntry&)>& ready);
  // A backward of the context begins, and ends, which may reach these parameters.
  void prepare_backward();
  void end_backward();
  // One that does has reached its first.
  void begin_backward() { told_complete_ = false; }
  // Starts to add the gradients over the ranks; those that no backward reached count as zero. From
  // here to finish_reduce() nothing may be added.
  void start_reduce();
  bool reduction_done() const;
  void finish_reduce(bool last);  // of the step
  // After the last reduction of a step: shard().grad holds the sum over micro-batches and ranks.
  void finish_step();
  // In place of reductions, for a rank that is alone: zeroes what no backward has reached.
  void finish_alone();

  // Adds the gradient of the other use, which `apart` has and loses, after both have been reduced.
  void add_gradient_of(FlatBuffer& apart);
  // The same, where the other use is on another stage: adds up what the ranks of `stages` have.
  void add_gradient_over(ProcessGroup& stages);

  // Which gradients have a value: of the shard, of each parameter; whether that is a sum.
  void for_each_gradient_flag(const std::function<void(bool&)>& visit);

  const OptimShard& shard() const { return shard_; }

  // ---- One parameter ----
  // This rank's part: `first` and `count` in the parameter, `offset` in what master() returns.
  const std::vector<OptimSpan>& spans() const { return shard_.spans; }
  // The parameter's elements [first, first + count), as rank `rank` of the shard group holds them.
  OptimSpan span_of(const FlatEntry& entry, int rank) const;
  // f32 masters, or the values of frozen parameters: a shard if is_sharded(), else whole.
  const Tensor& master() const { return shard_.master; }
  bool is_sharded() const;

 private:
  LeafState& leaf(const FlatEntry& entry, size_t part = 0) const;
  size_t row_parts() const;  // in which gradients arrive (Parameter::copies)
  bool is_last_part(const FlatEntry& entry);
  void make_row_gradient(size_t part);
  void add_row_gradients();
  bool shards_values() const;
  bool shards_gradients() const;
  Tensor own_part(const Tensor& whole) const;
  Work start_gather(const CollectiveOptions& options);
  Work start_sum(const CollectiveOptions& options);
  void sum_repeated(const Tensor& grad, CollectiveOptions& options);
  void make_missing_row_gradients();
  Tensor zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const;
  bool offloaded() const { return traits_.offload.tier != nullptr; }
  Event upload_masters(const Tensor& part);
  void take_reproducible_sum(const Tensor& sum);
  void add_sum(const Tensor& sum);
  bool has_gradient() const;
  bool has_sum() const { return shard_.gradient->has_value.value_or(false); }
  void set_has_sum();
  bool waits_with_sum();
  void keep_sum();
  void begin_from_zero();
  void drop_zeroed_sum();
  void fill_zeroed();
  void tell_complete(const Event& arrived);
  void make_values();
  void make_gradients();
  void write_initial_values();
  void make_whole_values();
  void drop_values();
  void bind_values();
  void unbind_values();
  void set_stale();
  void wait_for_gather();
  bool gathers_codes() const;
  bool gathers_fp8() const;
  bool reduces_codes() const;
  Work start_coded_gather(const CollectiveOptions& options);
  void for_each_matrix(const std::function<void(size_t, const Tensor&)>& visit) const;
  void start_largest();
  void finish_largest();
  Work start_fp8_gather(const CollectiveOptions& options);
  void bind_codes();
  void decode_fp8();
  void decode_values();
  Work start_coded_sum(const CollectiveOptions& options);
  void add_codes();
  Tensor gather_input();
  void* gather_stream() const;
  void make_whole_gradient();
  void complete();
  void free_whole_gradient();
  bool reduces_in_place() const;

  ShardingContext& shared_;
  std::string name_;
  BufferTraits traits_;
  FlatLayout layout_;
  OptimShard shard_;

  Tensor values_;       // whole, in the compute dtype; of what is gathered in fp8 on request
  Tensor small_shard_;  // of ShardGroups::reshard; in the compute dtype, or of fp8
  bool values_ready_ = false;
  bool gathering_ = false;
  Work gather_;
  Tensor codes_;              // of values_, while they are gathered; fp8: as long as they are here
  Tensor largest_;            // fp8: of each block of each matrix (kernels/fp8_shard.h)
  bool has_largest_ = false;  // of these masters, or they are on their way
  Work exchange_;             // of largest_
  Event gathered_;            // where gather_stream() has come to then

  Tensor whole_grad_;
  std::vector<Tensor> row_grads_;    // the same of further parts of the rows, until they are added
  std::vector<size_t> parts_ready_;  // by entry, in this backward
  Tensor kept_sum_;                  // stages 0, 1: of the backwards of this step that are over
  bool is_sum_ = false;              // stage 0: what whole_grad_ holds, where it holds something
  bool keeps_aside_ = false;         // stages 0, 1: the next gradient is the first after a sum
  Work repeated_;                    // over ShardGroups::tensor, of what every rank has
  Work reduction_;                   // then over ShardGroups::shard
  Work replicas_;                    // then over ShardGroups::replicate
  Tensor sum_;                       // where both leave it
  Tensor sent_codes_, got_codes_;    // of a reduction: of whole_grad_; all ranks' of sum_
  bool reducing_ = false;
  bool told_complete_ = false;                   // in this backward, to shard_.fence
  std::unique_ptr<HostGradient> host_gradient_;  // null: shard_.grad is on the device
  GradientCounter counter_;
};

}  // namespace shale::comm
