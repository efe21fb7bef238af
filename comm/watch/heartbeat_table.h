#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shale::comm {

// Heartbeat of one rank.
struct Heartbeat {
  uint64_t beats = 0;  // counter; 0: none yet
  int64_t step = -1;   // training step; -1: unknown
};

// Newest heartbeats of all ranks of a World, in memory that the ranks of a node share. These ranks
// write their own heartbeats; those of other nodes arrive over the network.
class HeartbeatTable {
 public:
  static size_t bytes(int ranks);

  // memory: bytes(ranks), initially zero, shared by the ranks of the node.
  HeartbeatTable(void* memory, int ranks) : memory_(memory), ranks_(ranks) {}

  int ranks() const { return ranks_; }
  Heartbeat get(int rank) const;
  // Keeps the newer of two heartbeats, because heartbeats may arrive out of order.
  void put(int rank, const Heartbeat& heartbeat);

  // Sets the step of a rank of this node without counting a heartbeat.
  void set_step(int rank, int64_t step);

  // Hash of what a rank of this node was doing when communication failed; 0: unknown.
  // print_if_unlike_others() of the watchdog compares them.
  uint64_t view(int rank) const;
  void set_view(int rank, uint64_t view);

  // Exit code with which ranks of other nodes are failing; 0: none.
  int failure_elsewhere() const;
  // Lowest rank of another node that fails by itself; -1: none is known.
  int failing_elsewhere() const;
  void set_failure_elsewhere(int code, int failing_rank);

 private:
  struct Slot;
  struct Header;
  Slot& slot(int rank) const;
  Header& header() const;

  void* memory_;
  int ranks_;
};

// Time since each rank's last heartbeat. Counts only time in which this process was awake, so a
// suspended job, or a machine that sleeps, causes no alarm.
class Silence {
 public:
  explicit Silence(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // Reads the table. elapsed_s: time since the previous call; counts as longest_s if it is longer.
  void look(const HeartbeatTable& table, double elapsed_s, double longest_s);

  // Returns ranks that have sent heartbeats, but none in the last `seconds` seconds.
  std::vector<int> silent_for(double seconds) const;
  // Returns the longest silence, in seconds, among ranks that have sent heartbeats.
  double longest() const;
  // Returns the ranks that have never sent a heartbeat.
  std::vector<int> never_heard() const;

 private:
  struct Rank {
    uint64_t beats = 0;
    double silent_s = 0;
  };
  std::vector<Rank> ranks_;
};

}  // namespace shale::comm
