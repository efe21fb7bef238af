#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Adds gradients one after another in the order of a binary tree. It holds one partial sum per
// level, like the bits of a binary counter: after 2^n gradients there is one, the root.
class GradientCounter {
 public:
  // Copies gradients that must be kept. All gradients are vectors of one length and dtype.
  void add(const Tensor& gradient);
  // Returns the root and empties the counter. Throws InternalError, naming `what`, unless 2^n
  // gradients were added.
  Tensor take(std::string_view what);

 private:
  std::vector<Tensor> levels_;
  int64_t added_ = 0;
};

}  // namespace shale::comm
