#pragma once

#include <vector>

namespace shale::comm {

// The nodes that a group's ranks are on. A node is a host, or a NUMA node if collectives use NUMA
// nodes. Nodes are ordered by their lowest rank, ranks on a node by rank.
struct Topology {
  int node = 0;                            // node of this rank
  int local = 0;                           // index of this rank on its node
  std::vector<std::vector<int>> ranks_of;  // group ranks of each node
  std::vector<int> node_of_rank;           // inverse of ranks_of
  std::vector<int> world_ranks;            // World rank of each group rank, for error messages
  bool one_host = false;                   // the nodes are parts of one host

  int nodes() const { return static_cast<int>(ranks_of.size()); }
  const std::vector<int>& local_ranks() const { return ranks_of[static_cast<size_t>(node)]; }

  int node_of(int rank) const { return node_of_rank[static_cast<size_t>(rank)]; }

  // Ranks with the same local index on different nodes form a rail; each rail carries a part of
  // the data between nodes.
  int rails() const {
    size_t smallest = ranks_of.front().size();
    for (const auto& ranks : ranks_of) smallest = ranks.size() < smallest ? ranks.size() : smallest;
    return static_cast<int>(smallest);
  }
};

}  // namespace shale::comm
