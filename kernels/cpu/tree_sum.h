#pragma once

#include "shale/kernels/tree_sum.h"

namespace shale::kernels::cpu {

void tree_sum(const Exec& exec, const TreeSumArgs& args);

}  // namespace shale::kernels::cpu
