#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"

namespace shale::comm {

// Reductions of a backward. All ranks start them in one order, whenever their units become ready:
// in the order of the units, or the caller's, if gathers already order the ranks.
class Reductions {
 public:
  // overlap: reductions overlap with computation; false: each start waits for its reduction.
  explicit Reductions(bool overlap) : overlap_(overlap) {}

  // order: units that the backward may reach; last: last backward of its step.
  void begin_backward(const std::vector<FlatUnit*>& order, bool last);
  // Starts reductions that are next in order and ready, and finishes those that are done.
  void start_ready();
  void start(FlatUnit& unit);
  // Waits for all reductions except the last `leave`.
  void finish(size_t leave);
  // Reduces the rest, units that no backward reached as zeros, and waits for all.
  void flush();

 private:
  void finish_first();

  const bool overlap_;
  std::vector<FlatUnit*> order_;
  size_t next_ = 0;  // in order_
  std::deque<FlatUnit*> in_flight_;
  bool last_ = true;
};

}  // namespace shale::comm
