#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "shale/comm/parallel/data/buffer_spec.h"
#include "shale/comm/parallel/data/gradient_counter.h"
#include "shale/comm/parallel/data/host_gradient.h"

namespace shale::comm {

// Gradient of a whole buffer as backward computes it on this rank. Each parameter's gradient is
// accumulated in its part of one tensor. In stages 0 and 1 the tensor always exists. In stages 2
// and 3 it exists from the first gradient of a backward to the end of its reduction.
//
// Parameters may have copies (Parameter::copies), each of which gets the gradient of some of the
// rows. Then every copy has a separate tensor until the copies are added.
class UnshardedGradient {
 public:
  // before_first: called in stages 0 and 1 when the first gradient after unbind() arrives; must
  // call bind(). Throws InternalError for a parameter that is already in another buffer.
  UnshardedGradient(const BufferSpec& spec, const std::function<void()>& before_first);
  void detach();  // disconnects the parameters from this object

  // Calls `ready` for each parameter when its gradient is complete in a backward.
  void add_ready_hook(const std::function<void(const FlatEntry&)>& ready);
  void begin_backward() { parts_ready_.assign(spec_.layout.entries.size(), 0); }

  const Tensor& whole() const { return whole_; }
  const std::vector<Tensor>& of_copies() const { return of_copies_; }
  // bind() points the parameters' gradients to their parts of whole(); unbind() clears them.
  void bind();
  void unbind();
  bool has_value(const FlatEntry& entry) const;
  bool has_any_value() const;

  void fill_missing();  // zeroes parts without a value
  void set_to_zero();   // zeroes all parts and marks them as having a value
  void complete();  // marks all parts as having a value; zeroes those that no backward has reached
  void add_copies();    // adds the copies to the whole as a binary tree
  void free();          // marks all parts as without value; frees the memory in stages 2 and 3

  // Visits the has-value flag of each part.
  void for_each_flag(const std::function<void(bool&)>& visit);

 private:
  void allocate();
  void allocate_copy(size_t part);

  const BufferSpec& spec_;
  Tensor whole_;
  std::vector<Tensor> of_copies_;
  // for each entry: parts (Parameter::copies) that are complete in this backward
  std::vector<size_t> parts_ready_;
};

// Accumulates the reduced gradients of a step's backwards in the gradient of the shard.
//
// In stages 0 and 1 the sum is stored in the unsharded gradient, or in this rank's part of it.
// Before the first gradient of a further backward, keep() copies the sum elsewhere; add() then adds
// the new sum to the copy.
class GradientAccumulator {
 public:
  // Sets the gradient of `shard`. All arguments must outlive this object.
  GradientAccumulator(const BufferSpec& spec, OptimShard& shard, UnshardedGradient& unsharded);

  // True if the unsharded gradient must be kept as it is: it is already a sum over ranks, so no
  // local gradient may be added.
  bool must_keep();
  void keep();         // copies the sum and restarts from zero
  void drop_zeroed();  // clears parts of the kept sum for which zero_grad() was called

  Tensor destination() const;  // tensor that a reduction writes its sum to
  // Adds the sum of a finished reduction, which is in destination(), to the sum of the step.
  void add(const Tensor& sum);
  void finish_step();  // completes the gradient after the last reduction
  // Event after which the gradient is complete; nullopt if only finish_step() completes it.
  std::optional<Event> completion() const;

  bool has_gradient() const;
  void clear();  // marks all gradients as absent
  // Visits flags of the shard and of its parameters, which say if a gradient exists and if it is a
  // sum over ranks.
  void for_each_flag(const std::function<void(bool&)>& visit);

 private:
  bool has_sum() const { return shard_.gradient->has_value.value_or(false); }
  bool reduces_in_place() const;
  void set_has_sum();
  void fill_zeroed();
  void add_sum(const Tensor& sum);
  void take_reproducible_sum(const Tensor& sum);

  const BufferSpec& spec_;
  OptimShard& shard_;
  UnshardedGradient& unsharded_;
  Tensor kept_;          // stages 0, 1: sum of the finished backwards of this step
  bool is_sum_ = false;  // stage 0: the unsharded gradient is a sum over ranks, if it has a value
  std::unique_ptr<HostGradient> host_;  // null: the gradient is on the device
  GradientCounter counter_;             // sums gradients in reproducible runs
};

}  // namespace shale::comm
