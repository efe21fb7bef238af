#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shale::comm {

// A sign of life of one rank.
struct Heartbeat {
  uint64_t beats = 0;  // 0: none yet
  int64_t step = -1;   // of training; -1: unknown
};

// The newest heartbeats of all ranks of a World, in memory that the ranks of a node share: those of
// the node write their own, those of other nodes come over the network.
class HeartbeatTable {
 public:
  static size_t bytes(int ranks);

  // memory: bytes(ranks), zeros at first, shared by the ranks of the node.
  HeartbeatTable(void* memory, int ranks) : memory_(memory), ranks_(ranks) {}

  int ranks() const { return ranks_; }
  Heartbeat get(int rank) const;
  // Keeps the newer of the two: news may come out of order.
  void put(int rank, const Heartbeat& heartbeat);

  // Between two heartbeats of a rank of this node.
  void set_step(int rank, int64_t step);

  // The exit code with which ranks of other nodes are failing; 0: none is.
  int failure_elsewhere() const;
  void set_failure_elsewhere(int code);

 private:
  struct Slot;
  struct Header;
  Slot& slot(int rank) const;
  Header& header() const;

  void* memory_;
  int ranks_;
};

// How long each rank has been silent, in time that this process was awake for: a job that is
// suspended as a whole and goes on, or a machine that sleeps, alarms nobody.
class Silence {
 public:
  explicit Silence(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // A look at the table, `elapsed_s` after the one before. Time beyond `longest_s` was not time of
  // being awake.
  void look(const HeartbeatTable& table, double elapsed_s, double longest_s);

  // Ranks that have been heard of and then silent for longer than this.
  std::vector<int> silent_for(double seconds) const;
  // Of the most silent of those that have been heard of, in seconds.
  double longest() const;
  // Ranks that never have been heard of.
  std::vector<int> never_heard() const;

 private:
  struct Rank {
    uint64_t beats = 0;
    double silent_s = 0;
  };
  std::vector<Rank> ranks_;
};

}  // namespace shale::comm
