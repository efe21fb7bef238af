#include "shale/comm/parallel/data/host_gradient.h"

#include "shale/kernels/elementwise.h"

namespace shale::comm {

void HostGradient::add(const Tensor& part, bool first) {
  settle();
  if (!first) to_add_ = tier_.allocate(part.numel(), part.dtype(), MemoryTag::kGradient, name_);
  arrived_ = tier_.download(part, first ? sum_ : to_add_, {tier_.computed()});
}

void HostGradient::settle() {
  arrived_.synchronize();
  if (!to_add_.defined()) return;
  kernels::axpby(to_add_.exec(), {.a = sum_, .b = to_add_, .y = sum_});
  to_add_ = Tensor();
}

}  // namespace shale::comm
