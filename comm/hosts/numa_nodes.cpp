#include "shale/comm/hosts/numa_nodes.h"

#include <bit>
#include <set>

#include "shale/base/error.h"

namespace shale::comm {

bool nodes_keep_tree(const std::vector<int>& nodes) {
  const size_t ranks = nodes.size();
  size_t each = 1;
  while (each < ranks && nodes[each] == nodes[0]) ++each;
  if (each < 2 || each == ranks || !std::has_single_bit(each) || ranks % each != 0) return false;
  std::set<int> seen;
  for (size_t first = 0; first < ranks; first += each) {
    if (nodes[first] < 0 || !seen.insert(nodes[first]).second) return false;
    for (size_t rank = first; rank < first + each; ++rank) {
      if (nodes[rank] != nodes[first]) return false;
    }
  }
  return true;
}

std::vector<int> numa_nodes(int ranks_per_node, const std::vector<std::string>& hosts,
                            const std::vector<int>& nodes) {
  const bool one_host = std::set<std::string>(hosts.begin(), hosts.end()).size() == 1;
  if (ranks_per_node == 1) return {};
  if (ranks_per_node == 0) return one_host && nodes_keep_tree(nodes) ? nodes : std::vector<int>();
  const int ranks = static_cast<int>(hosts.size());
  if (!one_host) {
    throw ConfigError(cat("--numa-ranks: values of 2 or more need all ranks on one host, found ",
                          "several hosts; use 0 or 1"));
  }
  std::vector<int> wanted;
  for (int rank = 0; rank < ranks; ++rank) wanted.push_back(rank / ranks_per_node);
  if (!nodes_keep_tree(wanted)) {
    throw ConfigError(cat("--numa-ranks: expected a power of two below ", ranks,
                          " that divides the ", ranks, " ranks, found ", ranks_per_node));
  }
  return wanted;
}

}  // namespace shale::comm
