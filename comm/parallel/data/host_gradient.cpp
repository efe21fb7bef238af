#include "shale/comm/parallel/data/host_gradient.h"

#include "shale/kernels/elementwise.h"

namespace shale::comm {

void HostGradient::add(const Tensor& part, bool first) {
  settle();
  if (!first) to_add_ = tier_.allocate(part.numel(), part.dtype(), MemoryTag::kGradient, name_);
  // If the sum is stored on disk, its memory exists only while it is written.
  if (first) tier_.acquire(sum_, /*fetch=*/false);
  arrived_ = tier_.download(part, first ? sum_ : to_add_, {tier_.computed()});
  if (!first || !tier_.on_disk()) return;
  arrived_.synchronize();
  tier_.release(sum_, /*changed=*/true);
}

void HostGradient::settle() {
  arrived_.synchronize();
  if (to_add_.defined()) with_sum([] {});
}

void HostGradient::with_sum(const std::function<void()>& use) {
  arrived_.synchronize();
  tier_.acquire(sum_);
  if (to_add_.defined()) {
    kernels::axpby(to_add_.exec(), {.a = sum_, .b = to_add_, .y = sum_});
    to_add_ = Tensor();
  }
  use();
  tier_.release(sum_, /*changed=*/true);
}

}  // namespace shale::comm
