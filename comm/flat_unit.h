#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/flat_layout.h"
#include "runtime/optim/shard.h"

namespace shale::comm {

// The parameters of a unit in flat buffers: the values in the compute dtype, the f32 masters (the
// same buffer when the compute dtype is f32) and the gradients.
class FlatUnit {
 public:
  // Allocates, binds the parameters and writes their initial values. Throws InternalError for a
  // parameter that another unit has already.
  FlatUnit(const UnitPlan& plan, Context& context, int ranks, DType compute, uint64_t seed);
  ~FlatUnit();  // the parameters lose their hooks; they keep their values
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;

  const std::string& name() const { return name_; }
  const FlatLayout& layout() const { return layout_; }
  const Tensor& grad() const { return grad_; }
  OptimShard shard() const;
  bool empty() const { return layout_.entries.empty(); }

  // Calls `ready` when the last gradient of the unit is complete in a backward.
  void set_ready_hook(std::function<void()> ready);
  void begin_backward() { pending_ = static_cast<int>(layout_.entries.size()); }
  bool ready() const { return pending_ == 0; }
  // Zeroes the gradients that no backward reached, and counts them as complete.
  void complete();

  // Elements of one parameter in the master buffer. Frozen parameters have a tensor of their own.
  const std::vector<std::pair<Parameter*, Tensor>>& masters() const { return masters_; }
  // Rounds a master into the parameter's compute dtype, after it was changed.
  void publish(const Parameter& parameter, const Tensor& master) const;

 private:
  void bind_frozen(Parameter& parameter, Context& context, DType compute, uint64_t seed);

  std::string name_;
  FlatLayout layout_;
  Tensor compute_;  // undefined when it is the master
  Tensor master_;
  Tensor grad_;
  std::vector<std::pair<Parameter*, Tensor>> masters_;
  int pending_ = 0;
};

}  // namespace shale::comm
