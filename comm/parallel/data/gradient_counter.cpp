#include "shale/comm/parallel/data/gradient_counter.h"

#include <bit>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {

void GradientCounter::add(const Tensor& gradient) {
  Tensor carry;
  size_t level = 0;
  for (; level < levels_.size() && levels_[level].defined(); ++level) {
    Tensor sum = std::move(levels_[level]);
    levels_[level] = Tensor();
    // The sum of earlier gradients must be the left operand.
    kernels::axpby(sum.exec(), {.a = sum, .b = carry.defined() ? carry : gradient, .y = sum});
    carry = std::move(sum);
  }
  if (!carry.defined()) {
    carry = empty(gradient.context(), gradient.shape(), gradient.dtype(), MemoryTag::kGradient,
                  "gradients of micro-batches");
    kernels::axpby(carry.exec(), {.a = gradient, .y = carry});
  }
  if (level == levels_.size()) levels_.emplace_back();
  levels_[level] = std::move(carry);
  ++added_;
}

Tensor GradientCounter::take(std::string_view what) {
  if (!std::has_single_bit(static_cast<uint64_t>(added_))) {
    throw InternalError(
        cat(what, ": ", added_, " micro-batches were added reproducibly, expected a power of two"));
  }
  Tensor root = std::move(levels_.back());
  levels_.clear();
  added_ = 0;
  return root;
}

}  // namespace shale::comm
