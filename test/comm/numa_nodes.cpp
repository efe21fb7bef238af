// Tests how ranks form NUMA nodes for hierarchical sums, given the locations of their GPUs.
#include "shale/comm/hosts/numa_nodes.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

using Nodes = std::vector<int>;
const std::vector<std::string> kOneHost(4, "a");

std::string refusal(int ranks_per_node, const std::vector<std::string>& hosts) {
  return test::message_of<ConfigError>(
      [&] { numa_nodes(ranks_per_node, hosts, Nodes(hosts.size(), -1)); });
}

}  // namespace

TEST_CASE("only nodes of one power of two of consecutive ranks keep the tree", "[comm]") {
  for (const Nodes& nodes : {Nodes{0, 0, 1, 1}, Nodes{1, 1, 0, 0}, Nodes{2, 2, 0, 0, 1, 1},
                             Nodes{0, 0, 0, 0, 1, 1, 1, 1}}) {
    CHECK(nodes_keep_tree(nodes));
  }
  for (const Nodes& nodes :
       {Nodes{}, Nodes{0}, Nodes{0, 0}, Nodes{0, 1}, Nodes{0, 1, 0, 1}, Nodes{0, 0, 1},
        Nodes{0, 0, 0, 1}, Nodes{0, 1, 1, 0}, Nodes{0, 0, 0, 1, 1, 1}, Nodes{0, 0, 1, 1, 0, 0},
        Nodes{-1, -1, 0, 0}, Nodes{-1, -1, -1, -1}}) {
    CHECK_FALSE(nodes_keep_tree(nodes));
  }
}

TEST_CASE("ranks have the NUMA nodes of their GPUs, or as many as are asked for", "[comm]") {
  CHECK(numa_nodes(0, kOneHost, {1, 1, 0, 0}) == Nodes{1, 1, 0, 0});
  CHECK(numa_nodes(0, kOneHost, {1, 0, 1, 0}).empty());
  CHECK(numa_nodes(0, kOneHost, {-1, -1, -1, -1}).empty());
  CHECK(numa_nodes(1, kOneHost, {0, 0, 1, 1}).empty());
  CHECK(numa_nodes(2, kOneHost, {-1, -1, -1, -1}) == Nodes{0, 0, 1, 1});
  CHECK(numa_nodes(0, {"a", "a", "b", "b"}, {0, 0, 1, 1}).empty());

  CHECK(refusal(3, kOneHost).find("found 3") != std::string::npos);
  CHECK(refusal(4, kOneHost).find("below 4") != std::string::npos);
  CHECK(refusal(2, {"a", "a", "a"}).find("divides the 3 ranks") != std::string::npos);
  CHECK(refusal(2, {"a", "a", "b", "b"}).find("several hosts") != std::string::npos);
}

}  // namespace shale::comm
