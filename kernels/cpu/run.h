#pragma once

#include "shale/base/exec.h"

namespace shale::kernels::cpu {

// Runs a slot on the CPU; its arguments are already checked. Each slot of slots.h has one
// specialization, in the file of its family; a missing one is a link error.
template <typename Args>
void run(const Exec& exec, const Args& args);

}  // namespace shale::kernels::cpu
