#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Queues a call on the GPU or the emulator, its arguments checked. As with cpu/run.h: a
// specialization for each slot of slots.h that has a kernel on every device.
template <typename Args>
void run(const Exec& exec, const Args& args);

}  // namespace shale::kernels::SHALE_BACKEND
