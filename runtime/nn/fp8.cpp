#include "shale/runtime/nn/fp8.h"

#include "shale/base/error.h"
#include "shale/kernels/fp8.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/moe.h"

namespace shale::nn {
namespace {

// Throws ConfigError unless the device supports the sizes of the layer's GEMMs and their gradients.
void check_sizes(const LinearWeights& layer, const Device& device) {
  const int64_t unit = kernels::fp8_lines_unit(device);
  Shape shape = layer.weight.shape;
  // The second dimension of a quantized weight's parameter is in bytes. The GEMM has the columns of
  // the weight.
  if (layer.weight.whole != layer.weight_shape()) shape[1] = layer.weight_shape()[1];
  if (shape[0] % unit == 0 && shape[1] % unit == 0) return;
  throw ConfigError(cat("--dtype fp8: the weight of ", layer.full_name(), " is ", shape,
                        " on each rank, expected multiples of ", unit, " for cuBLASLt on ", device,
                        "; use other sizes or fewer --tensor ranks, or --dtype bf16"));
}

int64_t set_operands(Module& module, Operands operands, const Device& device) {
  if (dynamic_cast<const MoE*>(&module) != nullptr) {
    throw ConfigError(cat("--dtype fp8: ", module.full_name(),
                          " is a MoE layer, which does not support fp8; use --dtype bf16"));
  }
  int64_t count = 0;
  if (auto* const layer = dynamic_cast<LinearWeights*>(&module);
      layer != nullptr && layer->is_adaptable) {
    check_sizes(*layer, device);
    layer->operands = operands;
    ++count;
  }
  for (Module* child : module.children()) count += set_operands(*child, operands, device);
  return count;
}

}  // namespace

void compute_in_fp8(std::span<Module* const> blocks, int64_t kept, Operands operands,
                    const Exec& exec) {
  const auto count = static_cast<int64_t>(blocks.size());
  int64_t layers = 0;
  for (int64_t i = kept; i < count - kept; ++i)
    layers += set_operands(*blocks[size_t(i)], operands, exec.device);
  if (layers == 0) {
    throw ConfigError(
        cat("--dtype fp8: no linear layer is left for fp8, as the first and the last ", kept,
            " of ", count,
            " blocks stay in bf16; use a smaller --fp8-kept-blocks, or "
            "--dtype bf16"));
  }
  if (exec.device.type == DeviceType::kCpu) return;
  kernels::check_fp8_gemm(exec, operands == Operands::kFp8Tensor ? kernels::Fp8Blocks::kTensor
                                                                 : kernels::Fp8Blocks::kLines);
}

Operands weight_operands(const Parameter& parameter) {
  const auto* const layer = dynamic_cast<const LinearWeights*>(parameter.owner);
  if (layer == nullptr) return Operands::kPlain;
  return &parameter == &layer->weight ? layer->operands : Operands::kPlain;
}

}  // namespace shale::nn
