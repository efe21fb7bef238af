#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"

namespace shale::comm {

// The reductions of a backward. All ranks begin them in one order, whatever order their units
// become ready in: that of the units, or, where gathers order the ranks already, the caller's.
class Reductions {
 public:
  // overlap: they run while this rank computes; false: each is waited for where it begins.
  explicit Reductions(bool overlap) : overlap_(overlap) {}

  // order: of the units that it may reach; last: of its step.
  void begin_backward(const std::vector<FlatUnit*>& order, bool last);
  // Begins those that are next in order and ready, and ends those that are over.
  void start_ready();
  void start(FlatUnit& unit);
  // Waits for all but `leave`.
  void finish(size_t leave);
  // Does what is left. Units that no backward reached are reduced as zeros.
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
