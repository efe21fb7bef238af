#include "shale/comm/watch/heartbeat_neighbors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "shale/comm/watch/heartbeat_table.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

constexpr int kNodes[] = {2, 3, 9, 10, 16, 17, 128, 1250, 10'000};

bool contains(const std::vector<int>& nodes, int node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// Simulates nodes with one rank each. A node's watchdog wakes every 50 ms, counts a beat, sends
// datagrams, forwards failures, and reports silent ranks.
class Nodes {
 public:
  static constexpr double kLook_s = 0.05;
  static constexpr int kLooksPerDatagram = 4;
  explicit Nodes(int nodes) {
    for (int i = 0; i < nodes; ++i) nodes_.push_back(std::make_unique<Node>(i, nodes));
  }
  void lose(int node) { nodes_[static_cast<size_t>(node)]->here = false; }

  void look(double timeout_s) {
    ++looks_;
    for (const auto& node : nodes_) {
      if (!node->here) continue;
      node->table.put(node->rank, {.beats = looks_});
      const bool news = node->failing && !node->told;
      if (looks_ % kLooksPerDatagram == 1 || news) send(*node);
      node->silence.look(node->table, kLook_s, 1);
      const std::vector<int> silent = node->silence.silent_for(timeout_s);
      if (!silent.empty()) node->missed = silent;
      node->failing = node->failing || !silent.empty() || node->table.failure_elsewhere() != 0;
    }
  }
  int64_t most_sent() const {
    int64_t most = 0;
    for (const auto& node : nodes_) most = std::max(most, node->sent);
    return most;
  }
  int failing() const {
    return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(),
                                          [](const auto& node) { return node->failing; }));
  }
  // Returns the nodes that are reported missing, or nothing if reports differ.
  std::vector<int> missed() const {
    std::vector<int> all;
    for (const auto& node : nodes_) {
      if (node->missed.empty()) continue;
      if (!all.empty() && all != node->missed) return {};
      all = node->missed;
    }
    return all;
  }

 private:
  struct Node {
    Node(int number, int nodes)
        : rank(number),
          neighbors(heartbeat_neighbors(number, nodes)),
          memory(static_cast<std::byte*>(std::aligned_alloc(64, HeartbeatTable::bytes(nodes)))),
          table(memory.get(), nodes),
          silence(nodes) {
      std::memset(memory.get(), 0, HeartbeatTable::bytes(nodes));
    }
    struct Free {
      void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    int rank;
    bool here = true, failing = false, told = false;
    int64_t sent = 0;
    std::vector<int> neighbors;
    std::unique_ptr<std::byte, Free> memory;
    HeartbeatTable table;
    Silence silence;
    std::vector<int> missed;
  };
  void send(Node& from) {
    for (const int neighbor : from.neighbors) {
      Node& to = *nodes_[static_cast<size_t>(neighbor)];
      ++from.sent;
      to.table.put(from.rank, from.table.get(from.rank));
      if (from.failing) to.table.set_failure_elsewhere(76, -1);
    }
    from.told = from.failing;
  }
  std::vector<std::unique_ptr<Node>> nodes_;
  uint64_t looks_ = 0;
};

}  // namespace

TEST_CASE("nodes have each other as neighbors, all if they are few, else at most eight") {
  for (const int nodes : kNodes) {
    CAPTURE(nodes);
    for (const int node : {0, 1, nodes / 2, nodes - 1}) {
      const std::vector<int> neighbors = heartbeat_neighbors(node, nodes);
      CHECK(neighbors.size() <= 8);
      CHECK(static_cast<int>(neighbors.size()) >= std::min(nodes - 1, 6));
      CHECK_FALSE(contains(neighbors, node));
      for (const int other : neighbors) CHECK(contains(heartbeat_neighbors(other, nodes), node));
    }
  }
}

TEST_CASE("what a rank sends does not grow with the nodes") {
  const auto sent_in_10_s = [](int count) {
    Nodes nodes(count);
    for (int i = 0; i < 200; ++i) nodes.look(/*timeout_s=*/2);
    CHECK(nodes.failing() == 0);
    return nodes.most_sent();
  };
  CHECK(sent_in_10_s(9) == 8 * 50);
  CHECK(sent_in_10_s(1250) == 8 * 50);
}

TEST_CASE("a lost host is named by its neighbors after the time-out, and soon all nodes know") {
  constexpr double kTimeout_s = 2, kBeat_s = 0.2;
  for (const int count : {2, 9, 128, 1250}) {
    CAPTURE(count);
    Nodes nodes(count);
    for (int i = 0; i < 20; ++i) nodes.look(kTimeout_s);
    nodes.lose(count / 2);
    double waited_s = 0;
    while (nodes.missed().empty() && waited_s < 10) {
      nodes.look(kTimeout_s);
      waited_s += Nodes::kLook_s;
    }
    CHECK(nodes.missed() == std::vector<int>{count / 2});
    CHECK(waited_s < kTimeout_s + 2 * kBeat_s);
    while (nodes.failing() < count - 1 && waited_s < 10) {
      nodes.look(kTimeout_s);
      waited_s += Nodes::kLook_s;
    }
    CHECK(nodes.failing() == count - 1);
    CHECK(waited_s < kTimeout_s + 2 * kBeat_s + 1);
  }
}

}  // namespace shale::comm
