#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"

namespace shale::comm {

// Reductions of the gradients of one backward. All ranks must start them in the same order. This is
// the order of the units, or the order of the calls if gathers already give it.
class Reductions {
 public:
  // overlap: reductions overlap with computation. false: each waits for its end when it starts.
  explicit Reductions(bool overlap) : overlap_(overlap) {}

  // order: units that the backward may reach. last: it is the last backward of its step.
  void begin_backward(const std::vector<FlatUnit*>& order, bool last);
  // Starts reductions up to the first unit that is not ready. Finishes those that are done.
  void start_ready();
  void start(FlatUnit& unit);
  // Waits for all reductions except the last `leave` ones.
  void finish(size_t leave);
  // Reduces the remaining units, zeros where no backward reached them. Waits for all units.
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
