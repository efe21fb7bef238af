#pragma once

#include <functional>
#include <string>

#include "shale/runtime/offload/host_tier.h"

namespace shale::comm {

// A vector in host memory that accumulates the gradients of a step's micro-batches on the CPU. The
// gradients are downloaded while the device continues.
class HostGradient {
 public:
  // `sum` is memory of the tier. The tier must outlive this object.
  HostGradient(offload::HostTier& tier, Tensor sum, std::string name)
      : tier_(tier), sum_(std::move(sum)), name_(std::move(name)) {}

  // Adds `part`, on the device; the caller may free it afterwards. first: overwrites the sum.
  void add(const Tensor& part, bool first);
  // Waits until everything that was added is in the sum.
  void settle();
  // Waits until all that was added is in the sum, then calls `use`, which may read and write it.
  void with_sum(const std::function<void()>& use);
  // True if settle() is not needed, because the sum is complete when the event arrived() is.
  bool settles_itself() const { return !to_add_.defined(); }
  const Event& arrived() const { return arrived_; }

 private:
  offload::HostTier& tier_;
  Tensor sum_;
  std::string name_;
  Event arrived_;  // download of the last added part
  Tensor to_add_;  // part to add once it has arrived; undefined: it went directly to the sum
};

}  // namespace shale::comm
