#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::comm {

// The order in which forward reaches the units, as the last forward showed it, and its reverse for
// backward: what to gather ahead. The same on all ranks, as they run the same model.
class UnitOrder {
 public:
  // Until a forward has been seen: the order in which units are most likely reached.
  void set_guess(std::vector<FlatUnit*> order) { order_ = std::move(order); }

  // Forward or backward reaches `unit`. Returns the units that come next, at most `depth`. Backward
  // comes to a unit that encloses others before it comes to those, as forward does.
  std::vector<FlatUnit*> forward(FlatUnit& unit, int depth);
  std::vector<FlatUnit*> backward(const FlatUnit& unit, bool encloses_units, int depth);

  void begin_backward();

 private:
  std::vector<FlatUnit*> order_;
  std::vector<FlatUnit*> seen_;  // in the forward that is running
  size_t position_ = 0;          // in order_, of the unit that backward reached last
};

// When the values of units are gathered and freed: before and after a unit's module runs, and ahead
// of that for the units that come next.
class UnitGathers {
 public:
  // prefetch: units gathered ahead of the one in use. on_disk: masters are, and are fetched for one
  // unit more.
  UnitGathers(ShardingContext& shared, int prefetch, bool on_disk)
      : shared_(shared), prefetch_(prefetch), ahead_(prefetch + (on_disk ? 1 : 0)) {}

  // In the order in which forward most likely reaches them.
  void set_units(std::vector<FlatUnit*> order) { order_.set_guess(std::move(order)); }
  bool in_backward() const { return shared_.context.autograd().backward_depth > 0; }
  void begin_backward() { order_.begin_backward(); }

  // What hooks of a unit's module do, the second also in backward.
  void before_forward(FlatUnit& unit);
  void after_forward(FlatUnit& unit);
  void before_backward(FlatUnit& unit);

 private:
  void gather(FlatUnit& unit, const std::vector<FlatUnit*>& chosen,
              const std::vector<FlatUnit*>& recorded);

  ShardingContext& shared_;
  const int prefetch_, ahead_;
  UnitOrder order_;
};

}  // namespace shale::comm
