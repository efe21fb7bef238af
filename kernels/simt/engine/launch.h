#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

// Queues the grid on exec.stream, or runs it at once when that is null. Blocks run on up to
// exec.threads OS threads; results do not depend on how many. Throws KernelError for sizes that
// exec.device.arch would refuse.
void launch(const Exec& exec, Grid grid);

// Bytes of shared memory of a block on compute capability arch / 10 (80, 90); 0: the most there is.
size_t shared_limit(int arch);

}  // namespace shale::emulator
