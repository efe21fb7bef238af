#pragma once

#include <cstddef>
#include <vector>

namespace shale::comm {

class FlatUnit;

// Starts the gathers of the first so many units, and has the others fetch their masters.
void start_in_order(const std::vector<FlatUnit*>& units, size_t gathered);

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

}  // namespace shale::comm
