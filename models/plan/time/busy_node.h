#pragma once

#include <sys/types.h>

#include <vector>

namespace shale::models {

// Copies of this process that keep a node busy: from the constructor on they do what this process
// does, so that its measurements see the contention for cores and memory that other ranks of a node
// cause. The copies print nothing.
class BusyNode {
 public:
  // Forks `others` copies. Call it before any thread is started. Throws UnavailableError if fork
  // fails.
  explicit BusyNode(int others);
  // Kills the copies. In a copy, ends the process.
  ~BusyNode();
  BusyNode(const BusyNode&) = delete;
  BusyNode& operator=(const BusyNode&) = delete;

 private:
  std::vector<pid_t> others_;
  bool is_other_ = false;
};

}  // namespace shale::models
