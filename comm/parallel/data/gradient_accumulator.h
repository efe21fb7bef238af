#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "shale/comm/parallel/data/buffer_spec.h"
#include "shale/comm/parallel/data/gradient_counter.h"
#include "shale/comm/parallel/data/host_gradient.h"

namespace shale::comm {

// The gradient of a whole buffer as backward makes it on this rank: each parameter's gradient is
// written to, and added up in, its part of one tensor. In stages 0 and 1 that lives throughout, in
// stages 2 and 3 from the first gradient of a backward to the end of its reduction.
//
// Where a parameter has copies (Parameter::copies), each of which gets the gradient of some of the
// rows, every copy has a tensor of its own, until they are added up.
class UnshardedGradient {
 public:
  // before_first: called in stages 0 and 1 when a gradient arrives after unbind(); it calls bind().
  // Throws InternalError for a parameter that is in another buffer already.
  UnshardedGradient(const BufferSpec& spec, const std::function<void()>& before_first);
  void detach();  // the parameters know nothing of this any more

  // Calls `ready` for each parameter, when its gradient is complete in a backward.
  void add_ready_hook(const std::function<void(const FlatEntry&)>& ready);
  void begin_backward() { parts_ready_.assign(spec_.layout.entries.size(), 0); }

  const Tensor& whole() const { return whole_; }
  const std::vector<Tensor>& of_copies() const { return of_copies_; }
  // Gives the parameters their parts of it, and takes them away.
  void bind();
  void unbind();
  bool has_value(const FlatEntry& entry) const;
  bool has_any_value() const;

  void fill_missing();  // zeroes the parts that have no value
  void set_to_zero();   // zeroes all, as values
  void complete();      // all have values; those that no backward has reached are zero
  void add_copies();    // by a binary tree over the parts
  void free();          // no part has a value; in stages 2 and 3 there is no memory any more

  // Whether each part has a value.
  void for_each_flag(const std::function<void(bool&)>& visit);

 private:
  void allocate();
  void allocate_copy(size_t part);

  const BufferSpec& spec_;
  Tensor whole_;
  std::vector<Tensor> of_copies_;
  std::vector<size_t> parts_ready_;  // by entry, in this backward
};

// Adds up what the reductions of a step's backwards leave, in the gradient of the shard.
//
// In stages 0 and 1 that sum takes the place of the unsharded gradient, or of this rank's part of
// it. Another backward of the step keeps the sum aside from its first gradient on, and its own is
// added to that.
class GradientAccumulator {
 public:
  // Gives `shard` its gradient. All outlive this.
  GradientAccumulator(const BufferSpec& spec, OptimShard& shard, UnshardedGradient& unsharded);

  // Whether the unsharded gradient holds a sum, to which those of a rank must not be added.
  bool must_keep();
  void keep();         // copies it, and begins from zero
  void drop_zeroed();  // what zero_grad() was called for is no part of a kept sum any more

  Tensor destination() const;  // of a reduction
  // After it: what it has left there.
  void add(const Tensor& sum);
  void finish_step();  // after the last one: the gradient is complete
  // Whether it will be complete without finish_step(), and when it is in host memory.
  std::optional<Event> completion() const;

  bool has_gradient() const;
  void clear();  // no gradient is here
  // Which gradients have a value: of the shard, of each parameter; whether that is a sum.
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
  Tensor kept_;          // stages 0, 1: of the backwards of this step that are over
  bool is_sum_ = false;  // stage 0: what is in the unsharded gradient, where there is something
  std::unique_ptr<HostGradient> host_;  // null: the gradient is on the device
  GradientCounter counter_;             // of reproducible runs
};

}  // namespace shale::comm
