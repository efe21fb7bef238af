#pragma once

#include <memory>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::comm {

// World ranks of a group, in order. Pointers to the same list stand for the same ranks.
using Members = std::shared_ptr<const std::vector<int>>;

// Simulated clock of a rank, in seconds from an arbitrary start.
class SimulatedClock {
 public:
  virtual ~SimulatedClock() = default;

  // Called when this rank queues a collective in `lane`. members: the group's World ranks. Returns
  // the time at which the collective ends.
  virtual double queue(const CollectiveCall& call, const Members& members, Lane lane) = 0;
  // Called when a pipeline message from one World rank to another is queued.
  virtual void send(const View& message, int sender, int receiver) = 0;
  // Called when the rank waits until `time` for operations that were queued in this lane.
  virtual void wait_until(double time, Lane lane) = 0;
};

}  // namespace shale::comm
