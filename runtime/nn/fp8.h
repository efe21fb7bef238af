#pragma once

#include <cstdint>
#include <span>

#include "shale/base/exec.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/linear.h"

namespace shale::nn {

// Makes the linear layers inside the blocks compute their GEMMs with fp8 operands
// (runtime/ops/linear.h), except in the first and last `kept` blocks. exec: where they run. Throws
// ConfigError for a block with an MoE layer, if there is no such linear layer, and for a layer of a
// size that the device's GEMMs do not take (kernels::fp8_lines_unit); UnavailableError as
// kernels::check_fp8_gemm().
void compute_in_fp8(std::span<Module* const> blocks, int64_t kept,
                    Operands operands = Operands::kFp8, const Exec& exec = {});

// Operand format of the layer that has this parameter as its weight; kPlain for all other
// parameters.
Operands weight_operands(const Parameter& parameter);

}  // namespace shale::nn
