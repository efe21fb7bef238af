#pragma once

#include <vector>

#include "shale/comm/parallel/pipeline/schedule.h"

namespace shale::comm {

// Time that a stage needs for a micro-batch, in any unit.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weights = 1;
};

struct SimulationOptions {
  int slots = 1;                       // maximum unread messages per link
  std::vector<StageTimes> times = {};  // times of each stage; empty: 1 for each
  double message = 0;                  // transfer time of a message, in the same unit
};

struct TimedAction {
  Action action;
  double begin = 0;
  double end = 0;  // end of the action and of sending its messages
};

// Result of a simulation.
struct Simulation {
  double makespan = 0;                          // time from the first start to the last end
  std::vector<double> idle;                     // time without work of each rank
  std::vector<int> held;  // for each rank: most micro-batches that await their backward
  std::vector<std::vector<TimedAction>> ranks;  // actions of each rank, in order
};

// Simulates a schedule on ranks that are connected by links (comm/link/pipe_link.h), one per
// direction for each pair of consecutive stages on different ranks. An action starts when its
// messages have arrived. It ends when its links have room for the messages that it sends.
//
// Each rank runs its actions in order and waits only for messages and for room; every link has one
// writer and one reader. Whether all lists finish therefore does not depend on timing (Kahn, "The
// semantics of a simple language for parallel programming", 1974; room is a message that travels
// back). A schedule that finishes here finishes in every run. Throws ConfigError for a schedule
// that check_schedule() refuses, and for a deadlock, naming the ranks in it.
Simulation simulate(const Schedule& schedule, const SimulationOptions& options = {});

}  // namespace shale::comm
