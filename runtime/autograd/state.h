#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace shale {

class Tensor;

// How saved tensors are kept between forward and backward: the one seam for recompute, offload and
// compression. pack() is called when an op saves a tensor, unpack() when backward needs it.
struct SavedTensorHooks {
  std::function<std::shared_ptr<void>(const Tensor&)> pack;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};

// Autograd's part of a Context.
struct AutogradState {
  bool enabled = true;   // false: ops record nothing
  bool training = true;  // false: dropout does nothing; not the same, as recompute runs unrecorded
  uint64_t next_node = 0;  // nodes are numbered in the order of their making
  std::vector<std::shared_ptr<const SavedTensorHooks>> saved_hooks;  // the innermost is last
};

}  // namespace shale
