#pragma once

#include "shale/base/exec.h"

namespace shale::kernels::cpu {

// Carries out a call on the CPU, its arguments checked. There are specializations alone, one for
// each slot of slots.h, in the file of its family; where one is missing, no program links.
template <typename Args>
void run(const Exec& exec, const Args& args);

}  // namespace shale::kernels::cpu
