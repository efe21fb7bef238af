#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::offload {

// Which activations go to host memory, and when they come back.
struct ActivationOptions {
  int64_t min_bytes = int64_t{16} << 10;  // smaller tensors stay on the device
  int prefetch = 4;                       // tensors on their way back ahead of backward
};

// Keeps what forward saves for backward in host memory. Copies to the host run beside forward; a
// tensor's device memory is free when its copy and its last use are over. In backward they come
// back in the reverse of the order in which they left, some ahead of their use.
//
//   ActivationOffload offload(tier);
//   { SavedTensorHooksScope scope(context, offload.hooks()); loss = model.loss(...); }
//   backward(loss);
//
// What several ops save of one storage travels once. A storage that is still in use on the device
// when backward asks for it is not copied back.
class ActivationOffload {
 public:
  explicit ActivationOffload(HostTier& tier, const ActivationOptions& options = {});

  // Must outlive the scopes and the graphs recorded under them.
  SavedTensorHooks hooks();
  int64_t bytes_offloaded() const { return bytes_offloaded_; }  // since the beginning

 private:
  class Parked;
  struct Saved;

  std::shared_ptr<void> pack(const Tensor& x);
  Tensor unpack(const Saved& saved);
  std::shared_ptr<Parked> park(const Tensor& x);
  void prefetch_before(size_t index);

  HostTier& tier_;
  ActivationOptions options_;
  std::vector<std::weak_ptr<Parked>> parked_;  // in the order of forward
  int64_t bytes_offloaded_ = 0;
};

}  // namespace shale::offload
