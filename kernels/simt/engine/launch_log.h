#pragma once

#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

// With SHALE_EMU_LAUNCHES=FILE in the environment: writes a line to the file for every kernel and
// size that differs from those before: "<symbol> <compute capability, such as 90> <threads of a
// block> <bytes of dynamic shared memory>". For comparing with what the machine code allows.
void log_launch(const Grid& grid, int arch);

}  // namespace shale::emulator
