#pragma once

#include <vector>

namespace shale::comm {

// Which nodes exchange heartbeats with `node`, of `nodes`: all others while they are few, then at
// most eight, at distances 1, b, b^2 and b^3 both ways around, b being the fourth root of their
// number. So a node is watched by several others, near and far, however many there are; what one of
// them passes on has reached all in about 2 b steps; and what a rank sends does not grow.
// By number; if one node has another as its neighbor, so has that one this.
std::vector<int> heartbeat_neighbors(int node, int nodes);

}  // namespace shale::comm
