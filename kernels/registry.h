#pragma once

namespace shale::kernels {

// Fills the CPU entry of every slot. Called once per process, before the first kernel; later calls
// do nothing. Explicit, because a static library drops self-registering objects.
void register_cpu_kernels();

}  // namespace shale::kernels
