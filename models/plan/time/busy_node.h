#pragma once

#include <sys/types.h>

#include <vector>

namespace shale::models {

// Copies of this process, which do what this process does. They keep the node's cores and memory as
// busy as the other ranks of a node would, so that measurements of this process are realistic. The
// copies print nothing.
class BusyNode {
 public:
  // Forks `others` copies. Call it before this process starts a thread. Throws UnavailableError if
  // fork fails.
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
