#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/fp8.h"

namespace shale::kernels::cpu {

// Dequantizes an operand exactly to `to` [lines, length].
void decode_fp8(const Exec& exec, const Fp8Operand& operand, bf16* to);

}  // namespace shale::kernels::cpu
