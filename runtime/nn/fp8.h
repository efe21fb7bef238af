#pragma once

#include <cstdint>
#include <span>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/linear.h"

namespace shale::nn {

// Makes the products of linear layers inside blocks of such operands of fp8
// (runtime/ops/linear.h), but for the first and last `kept` of the blocks. Throws ConfigError for a
// block that has a mixture of experts, and when there is no layer to do so with.
void compute_in_fp8(std::span<Module* const> blocks, int64_t kept,
                    Operands operands = Operands::kFp8);

// In what operands a layer multiplies the parameter, which is its weight and which nothing else
// reads; kPlain of all others.
Operands weight_operands(const Parameter& parameter);

}  // namespace shale::nn
