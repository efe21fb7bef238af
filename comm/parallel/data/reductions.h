#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"

namespace shale::comm {

// Reductions of the gradients of one backward. All ranks must start them in the same order: in the
// order of the units, or in the caller's order if gathers already order the ranks.
class Reductions {
 public:
  // overlap: reductions overlap with computation; false: each start waits for its reduction.
  explicit Reductions(bool overlap) : overlap_(overlap) {}

  // order: units that the backward may reach; last: last backward of its step.
  void begin_backward(const std::vector<FlatUnit*>& order, bool last);
  // Starts the ready reductions that are next in order, and finishes those that are done.
  void start_ready();
  void start(FlatUnit& unit);
  // Waits for all reductions except the last `leave` ones.
  void finish(size_t leave);
  // Reduces the remaining units, as zeros if no backward reached them, and waits for all units.
  void flush();

 private:
  void finish_first();

  const bool overlap_;
  std::vector<FlatUnit*> order_;
  size_t next_ = 0;  // index in order_ of the next unit to reduce
  std::deque<FlatUnit*> in_flight_;
  bool last_ = true;
};

}  // namespace shale::comm
