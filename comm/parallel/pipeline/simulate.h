#pragma once

#include <vector>

#include "shale/comm/parallel/pipeline/schedule.h"

namespace shale::comm {

// How long a stage works on a micro-batch, in any unit of time.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weights = 1;
};

struct SimulationOptions {
  int slots = 1;                       // messages of a link that may wait to be taken
  std::vector<StageTimes> times = {};  // by stage; empty: 1 each
  double message = 0;                  // from when a link is given one until it can be taken
};

struct TimedAction {
  Action action;
  double begin = 0;
  double end = 0;  // it has been done, and what it sends is on the link
};

// What a schedule comes to.
struct Simulation {
  double makespan = 0;                           // from the first action's begin to the last's end
  std::vector<double> idle;                      // by rank: of that, without work
  std::vector<int> held;                         // by rank: most forwards whose backward is to come
  std::vector<std::vector<TimedAction>> ranks;  // by rank, in order
};

// Runs a schedule on ranks that are joined by the links of comm/link/pipe_link.h: one for each pair
// of stages that follow each other on two ranks, and direction. An action begins when its messages
// are there, and ends when there is room for what it sends.
//
// Each rank does its actions in order and waits for nothing but messages and room, every link has
// one writer and one reader, and nobody else takes what an action waits for. So whether all lists
// come to their end does not depend on how fast anything is (Kahn, "The semantics of a simple
// language for parallel programming", 1974; room is a message that travels back): what ends here
// ends in every run. Throws ConfigError for a schedule that check_schedule() refuses, and for one
// that would stop, naming the ring of ranks that wait for each other.
Simulation simulate(const Schedule& schedule, const SimulationOptions& options = {});

}  // namespace shale::comm
