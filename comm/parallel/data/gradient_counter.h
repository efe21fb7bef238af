#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Adds gradients in the order of a binary tree, one after another. It holds one partial sum per
// level of the tree, like the bits of a binary counter. After 2^n gradients there is only one, the
// root.
class GradientCounter {
 public:
  // Adds a gradient; copies it to keep it. All gradients are vectors of the same length and dtype.
  void add(const Tensor& gradient);
  // Returns the sum and empties the counter. Throws InternalError, naming `what`, unless 2^n
  // gradients were added.
  Tensor take(std::string_view what);

 private:
  std::vector<Tensor> levels_;
  int64_t added_ = 0;
};

}  // namespace shale::comm
