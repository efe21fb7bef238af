#pragma once

#include <memory>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::comm {

// The ranks of the world that are a group's, in order. Groups with one list have the same ranks.
using Members = std::shared_ptr<const std::vector<int>>;

// Keeps the time of a rank whose group is simulated. Seconds, from wherever the clock began.
class SimulatedClock {
 public:
  virtual ~SimulatedClock() = default;

  // A collective is queued now, in this lane, by the ranks of the world that are `members`. Returns
  // when it will be done.
  virtual double queue(const CollectiveCall& call, const Members& members, Lane lane) = 0;
  // A message of a pipeline is queued, from one rank of the world to another.
  virtual void send(const View& message, int sender, int receiver) = 0;
  // The rank waits until then, for what was queued in this lane.
  virtual void wait_until(double time, Lane lane) = 0;
};

}  // namespace shale::comm
