#pragma once

#include <functional>
#include <string>

#include "shale/runtime/offload/host_tier.h"

namespace shale::comm {

// A vector in host memory to which the sums of a step's micro-batches are added, on the CPU. They
// come from the device while it goes on.
class HostGradient {
 public:
  // `sum` lies in the tier; all outlive this.
  HostGradient(offload::HostTier& tier, Tensor sum, std::string name)
      : tier_(tier), sum_(std::move(sum)), name_(std::move(name)) {}

  // `part` lies on the device, is like the sum, and may be dropped. first: in place of what the sum
  // holds.
  void add(const Tensor& part, bool first);
  // Returns when all that was added is in the sum.
  void settle();
  // Calls `use`, which may read and write the sum, with all that was added in it.
  void with_sum(const std::function<void()>& use);
  // Whether it will be there when arrived() has come to pass, without settle().
  bool settles_itself() const { return !to_add_.defined(); }
  const Event& arrived() const { return arrived_; }

 private:
  offload::HostTier& tier_;
  Tensor sum_;
  std::string name_;
  Event arrived_;  // of what was added last
  Tensor to_add_;  // once arrived; undefined: it went to the sum
};

}  // namespace shale::comm
