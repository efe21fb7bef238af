#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Queues a slot's kernels on the GPU or the emulator; the arguments are already checked. As in
// cpu/run.h, each slot of slots.h with a kernel on every device has one specialization.
template <typename Args>
void run(const Exec& exec, const Args& args);

}  // namespace shale::kernels::SHALE_BACKEND
