#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::offload {

// Options that say which activations are offloaded and how early they are prefetched.
struct ActivationOptions {
  int64_t min_bytes = int64_t{16} << 10;  // smaller tensors stay on the device
  int prefetch = 4;  // number of tensors to prefetch before backward needs them
};

// Keeps tensors saved for backward in host memory. Copies to the host overlap with forward; device
// memory is free after the copy and the last use. Backward fetches tensors in reverse order, some
// ahead of their use.
//
//   ActivationOffload offload(tier);
//   { SavedTensorHooksScope scope(context, offload.hooks()); loss = model.loss(...); }
//   backward(loss);
//
// A storage that several ops save is copied once. A storage that is still on the device when
// backward needs it is not copied back.
class ActivationOffload {
 public:
  explicit ActivationOffload(HostTier& tier, const ActivationOptions& options = {});

  // This object must outlive the scopes that use the hooks, and the graphs recorded in them.
  SavedTensorHooks hooks();
  int64_t bytes_offloaded() const { return bytes_offloaded_; }  // total bytes offloaded so far

 private:
  class Parked;
  struct Saved;

  std::shared_ptr<void> pack(const Tensor& x);
  Tensor unpack(const Saved& saved);
  std::shared_ptr<Parked> park(const Tensor& x);
  void prefetch_before(size_t index);

  HostTier& tier_;
  ActivationOptions options_;
  std::vector<std::weak_ptr<Parked>> parked_;  // storages in the order in which forward saved them
  int64_t bytes_offloaded_ = 0;
};

}  // namespace shale::offload
