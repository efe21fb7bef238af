#pragma once

#include <string>
#include <vector>

namespace shale::comm {

// Whether sums that are made inside each NUMA node first, then over the nodes, have the bits of one
// tree over all ranks, and are worth it: there are several nodes, of the same power of two of
// consecutive ranks, two at least. nodes: of each rank, or of each GPU; -1: unknown.
bool nodes_keep_tree(const std::vector<int>& nodes);

// The NUMA node of each rank, by which collectives in host memory are made (World::set_numa_nodes);
// empty: as if there were one.
//
// ranks_per_node: how many consecutive ranks have one; 0: by where their GPUs are, if
// nodes_keep_tree(); 1: one for all. hosts and nodes: of each rank, a node of -1 being unknown.
// Sums of ranks on several hosts are made host by host, whatever the nodes. Throws ConfigError for
// a number of ranks that cannot be.
std::vector<int> numa_nodes(int ranks_per_node, const std::vector<std::string>& hosts,
                            const std::vector<int>& nodes);

}  // namespace shale::comm
