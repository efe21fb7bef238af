#pragma once

#include <cstdint>
#include <span>

#include "shale/base/exec.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/linear.h"

namespace shale::nn {

// Makes the linear layers inside `blocks` compute their GEMMs with fp8 operands
// (runtime/ops/linear.h), except in the first and last `kept` blocks. exec: where the GEMMs run.
// Throws ConfigError for a block with an MoE layer, if there is no such linear layer, and if the
// device's fp8 GEMMs do not support a layer's size (kernels::fp8_lines_unit). Throws
// UnavailableError like kernels::check_fp8_gemm().
void compute_in_fp8(std::span<Module* const> blocks, int64_t kept,
                    Operands operands = Operands::kFp8, const Exec& exec = {});

// Returns the operand format of the layer whose weight this parameter is; kPlain for all other
// parameters.
Operands weight_operands(const Parameter& parameter);

}  // namespace shale::nn
