#pragma once

#include <string>
#include <vector>

namespace shale::comm {

// True if sums inside each NUMA node first, then over the nodes, have the same bits as one tree
// over all ranks, and are useful: there are several nodes, each with the same number of consecutive
// ranks, a power of two of at least 2. nodes: by rank, or by GPU; -1: unknown.
bool nodes_keep_tree(const std::vector<int>& nodes);

// NUMA node of each rank, for collectives in host memory (World::set_numa_nodes); empty: one node.
//
// ranks_per_node: consecutive ranks per node; 0: by the location of their GPUs, if
// nodes_keep_tree(); 1: one node for all. hosts and nodes: by rank, node -1: unknown. Throws
// ConfigError for invalid numbers, and for 2 or more with several hosts, where sums are made host
// by host.
std::vector<int> numa_nodes(int ranks_per_node, const std::vector<std::string>& hosts,
                            const std::vector<int>& nodes);

}  // namespace shale::comm
