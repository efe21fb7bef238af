#pragma once

#include <sys/types.h>

#include <vector>

namespace shale::models {

// Processes that do what this one does from here on, beside it, so that what it measures is as fast
// as it is where other ranks of a node use the same cores and the same memory. They print nothing.
class BusyNode {
 public:
  // Forks so many; before there are threads. Throws UnavailableError if the system refuses.
  explicit BusyNode(int others);
  // Ends them; in one of them, ends the process.
  ~BusyNode();
  BusyNode(const BusyNode&) = delete;
  BusyNode& operator=(const BusyNode&) = delete;

 private:
  std::vector<pid_t> others_;
  bool is_other_ = false;
};

}  // namespace shale::models
