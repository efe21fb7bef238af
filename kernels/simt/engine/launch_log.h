#pragma once

#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

// If the environment variable SHALE_EMU_LAUNCHES names a file, writes a line to it for every new
// combination of kernel and sizes: "<symbol> <compute capability, such as 90> <threads of a block>
// <bytes of dynamic shared memory>". The lines can be compared with the limits of the machine code.
void log_launch(const Grid& grid, int arch);

}  // namespace shale::emulator
