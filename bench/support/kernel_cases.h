#pragma once

#include <vector>

#include "bench/support/operands.h"

namespace shale::bench {

// Every CPU kernel at the sizes that GPT-2 124M gives it (1024 and 2048 tokens) and at those of the
// small model "nano", for each dtype. A test holds this to have a case for every slot.
std::vector<KernelCase> kernel_cases(const std::vector<DType>& dtypes);

}  // namespace shale::bench
