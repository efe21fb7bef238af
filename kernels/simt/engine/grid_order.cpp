#include "shale/kernels/simt/engine/grid_order.h"

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

void check_waited(Fiber& self, const char* access) {
  if (!self.before_wait) return;
  self.block->fail(Fault::kGridOrder, cat("the thread ", access, kBeforeWait));
}

void begin_kernel(const void* call, size_t bytes) {
  t_fiber->block->hold_call(call, bytes);
}

void await_previous_grid(Site site) {
  enter("await_previous_grid", site).before_wait = false;
}

}  // namespace shale::emulator
