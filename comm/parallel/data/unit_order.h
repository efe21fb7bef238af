#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::comm {

// Order in which the last forward reached the units. It says which units to gather ahead in forward
// and, reversed, in backward. It is equal on all ranks, because they run the same model.
class UnitOrder {
 public:
  // Sets the probable order of units, which is used until a forward has been recorded.
  void set_guess(std::vector<FlatUnit*> order) { order_ = std::move(order); }

  // Called when forward or backward reaches `unit`. Returns up to `depth` units that come next.
  // Backward, like forward, reaches an enclosing unit before the units inside it.
  std::vector<FlatUnit*> forward(FlatUnit& unit, int depth);
  std::vector<FlatUnit*> backward(const FlatUnit& unit, bool encloses_units, int depth);

  void begin_backward();

 private:
  std::vector<FlatUnit*> order_;
  std::vector<FlatUnit*> seen_;  // units of the current forward
  size_t position_ = 0;          // index in order_ of the unit that backward reached last
};

// Gathers the values of units before their modules run, and ahead of time for units that come next;
// frees them after the modules have run.
class UnitGathers {
 public:
  // prefetch: number of units to gather ahead of the current one. on_disk: masters are on disk, so
  // those of one more unit are prefetched from it.
  UnitGathers(ShardingContext& shared, int prefetch, bool on_disk)
      : shared_(shared), prefetch_(prefetch), ahead_(prefetch + (on_disk ? 1 : 0)) {}

  // Sets the units, in the order in which forward probably reaches them.
  void set_units(std::vector<FlatUnit*> order) { order_.set_guess(std::move(order)); }
  bool in_backward() const { return shared_.context().autograd().backward_depth > 0; }
  void begin_backward() { order_.begin_backward(); }

  // Actions of a unit's module hooks. A recomputation in backward also calls after_forward().
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
