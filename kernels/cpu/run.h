#pragma once

#include "shale/base/exec.h"

namespace shale::kernels::cpu {

// Runs a slot on the CPU; the arguments are already checked. Each slot of slots.h has one
// specialization, next to its kernels; a missing specialization is a link error.
template <typename Args>
void run(const Exec& exec, const Args& args);

}  // namespace shale::kernels::cpu
