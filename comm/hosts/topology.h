#pragma once

#include <algorithm>
#include <vector>

namespace shale::comm {

// Which ranks of a group are on which node: a host, or where collectives are made NUMA node by NUMA
// node, one of those. Nodes are in the order of their lowest rank, ranks on a node in rank order.
struct Topology {
  int node = 0;                            // of this rank
  int local = 0;                           // index of this rank on its node
  std::vector<std::vector<int>> ranks_of;  // group ranks, by node
  std::vector<int> world_ranks;            // by group rank, for messages
  bool one_host = false;                   // of which the nodes are parts

  int nodes() const { return static_cast<int>(ranks_of.size()); }
  const std::vector<int>& local_ranks() const { return ranks_of[static_cast<size_t>(node)]; }

  int node_of(int rank) const {
    int found = 0;
    while (std::find(ranks_of[static_cast<size_t>(found)].begin(),
                     ranks_of[static_cast<size_t>(found)].end(),
                     rank) == ranks_of[static_cast<size_t>(found)].end()) {
      ++found;
    }
    return found;
  }

  // Ranks with one local index on different nodes are a rail; a rail carries a part of every
  // message.
  int rails() const {
    size_t smallest = ranks_of.front().size();
    for (const auto& ranks : ranks_of) smallest = ranks.size() < smallest ? ranks.size() : smallest;
    return static_cast<int>(smallest);
  }
};

}  // namespace shale::comm
