#pragma once

#include <vector>

namespace shale::comm {

// Returns the nodes, of `nodes`, that exchange heartbeats with `node`, sorted. If there are few
// nodes, these are all others. Otherwise they are at most eight, at distances 1, b, b^2 and b^3 in
// both directions, where b is the fourth root of `nodes`. Every node is therefore watched by
// several near and far ones, a message that nodes forward reaches all nodes in about 2 b steps, and
// each rank's traffic stays constant. The relation is symmetric.
std::vector<int> heartbeat_neighbors(int node, int nodes);

}  // namespace shale::comm
