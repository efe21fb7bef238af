#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

// Queues the grid on exec.stream, or runs it immediately if the stream is null. Blocks run on up to
// exec.threads OS threads; results do not depend on their number. Throws KernelError for sizes that
// exec.device.arch would reject.
void launch(const Exec& exec, Grid grid);

// Returns the maximum shared memory of a block on compute capability arch / 10 (80, 90); for arch 0
// the largest of all.
size_t shared_limit(int arch);

}  // namespace shale::emulator
