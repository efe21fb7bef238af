#include "shale/runtime/nn/fp8.h"

#include "shale/base/error.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/moe.h"

namespace shale::nn {
namespace {

int64_t set_operands(Module& module, Operands operands) {
  if (dynamic_cast<const MoE*>(&module) != nullptr) {
    throw ConfigError(cat("--dtype fp8: ", module.full_name(),
                          " is a MoE layer, which does not support fp8; use --dtype bf16"));
  }
  int64_t count = 0;
  if (auto* const layer = dynamic_cast<LinearWeights*>(&module);
      layer != nullptr && layer->is_adaptable) {
    layer->operands = operands;
    ++count;
  }
  for (Module* child : module.children()) count += set_operands(*child, operands);
  return count;
}

}  // namespace

void compute_in_fp8(std::span<Module* const> blocks, int64_t kept, Operands operands) {
  const auto count = static_cast<int64_t>(blocks.size());
  int64_t layers = 0;
  for (int64_t i = kept; i < count - kept; ++i)
    layers += set_operands(*blocks[size_t(i)], operands);
  if (layers == 0) {
    throw ConfigError(
        cat("--dtype fp8: no linear layer is left for fp8, as the first and the last ", kept,
            " of ", count,
            " blocks stay in bf16; use a smaller --fp8-kept-blocks, or "
            "--dtype bf16"));
  }
}

Operands weight_operands(const Parameter& parameter) {
  const auto* const layer = dynamic_cast<const LinearWeights*>(parameter.owner);
  if (layer == nullptr) return Operands::kPlain;
  return &parameter == &layer->weight ? layer->operands : Operands::kPlain;
}

}  // namespace shale::nn
