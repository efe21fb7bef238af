#pragma once

#include <string>
#include <vector>

namespace shale::comm {

// True if adding first inside each NUMA node, then over the nodes, gives the same bits as one tree
// over all ranks. This needs several nodes that each have the same number of consecutive ranks, a
// power of two of at least 2. nodes: the node of each rank or GPU; -1: unknown.
bool nodes_keep_tree(const std::vector<int>& nodes);

// Returns the NUMA node of each rank, for collectives in host memory (World::set_numa_nodes).
// Empty: all ranks are on one node.
//
// ranks_per_node: number of consecutive ranks per node. 1: one node for all ranks. 0: nodes are
// taken from `nodes` if nodes_keep_tree(). hosts and nodes: host and NUMA node of each rank; -1:
// unknown. Throws ConfigError for invalid numbers, and for 2 or more if there are several hosts,
// where ranks always add host by host.
std::vector<int> numa_nodes(int ranks_per_node, const std::vector<std::string>& hosts,
                            const std::vector<int>& nodes);

}  // namespace shale::comm
