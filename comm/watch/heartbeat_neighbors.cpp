#include "shale/comm/watch/heartbeat_neighbors.h"

#include <cstdint>
#include <set>

namespace shale::comm {
namespace {

constexpr int kMost = 8;

// Smallest number whose fourth power is at least `value`.
int64_t fourth_root(int64_t value) {
  int64_t root = 1;
  while (root * root * root * root < value) ++root;
  return root;
}

}  // namespace

std::vector<int> heartbeat_neighbors(int node, int nodes) {
  std::set<int> found;
  if (nodes <= kMost + 1) {
    for (int other = 0; other < nodes; ++other) found.insert(other);
  } else {
    const int64_t base = fourth_root(nodes);
    int64_t distance = 1;
    for (int i = 0; i < kMost / 2; ++i, distance *= base) {
      const auto step = static_cast<int>(distance % nodes);
      found.insert((node + step) % nodes);
      found.insert((node + nodes - step) % nodes);
    }
  }
  found.erase(node);
  return {found.begin(), found.end()};
}

}  // namespace shale::comm
