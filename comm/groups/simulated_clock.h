#pragma once

#include <memory>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::comm {

// World ranks of a group, in order. Groups with the same list have the same ranks.
using Members = std::shared_ptr<const std::vector<int>>;

// Clock of a rank in a simulated group, in seconds from any start.
class SimulatedClock {
 public:
  virtual ~SimulatedClock() = default;

  // Called when a collective is queued in this lane, with its World ranks. Returns its end time.
  virtual double queue(const CollectiveCall& call, const Members& members, Lane lane) = 0;
  // Called when a message of a pipeline is queued, between two World ranks.
  virtual void send(const View& message, int sender, int receiver) = 0;
  // Called when the rank waits until `time` for what was queued in this lane.
  virtual void wait_until(double time, Lane lane) = 0;
};

}  // namespace shale::comm
