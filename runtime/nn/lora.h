#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/runtime/nn/layers.h"

namespace shale::nn {

// Adapters of linear layers (Hu et al., "LoRA", arXiv:2106.09685).
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;            // of what goes into an adapter
  bool rank_stabilized = false;  // alpha / sqrt(rank) (arXiv:2312.03732); else alpha / rank

  // What the two products are multiplied with.
  double scale() const;
};

// Adds scale * B A x to the product of a layer [out, in]: A is "lora_A.weight" [rank, in], random
// at first, B "lora_B.weight" [out, rank], zero at first, both parameters of children of the layer.
class Lora {
 public:
  // The layer outlives this.
  Lora(LinearWeights& layer, const LoraOptions& options, uint32_t dropout_site);
  // y + scale * B A dropout(x). x: [..., in], y: [..., out].
  Tensor forward(const Tensor& x, const Tensor& y) const;

  LinearWeights a, b;

 private:
  LoraOptions options_;
  uint32_t dropout_site_;
};

// "all-linear" among targets.
inline constexpr const char* kAllLinear = "all-linear";

// Gives adapters to those linear layers of the tree whose full name is a target or ends with a dot
// and a target ("q_proj", "self_attn.q_proj"), or with which, behind a dot, a target ends ("model."
// and a full name); with "all-linear" to all that take one. Freezes all other parameters. Returns
// the layers, in the order of the tree. Throws ConfigError for sizes that cannot be, and, with the
// names that there are, for a target that no layer has.
std::vector<LinearWeights*> add_adapters(Module& root, const LoraOptions& options,
                                         const std::vector<std::string>& targets);
// The layers of a tree that have adapters, in its order.
std::vector<LinearWeights*> adapted_layers(Module& root);

// Whether it is an A or a B.
bool is_of_adapter(const Parameter& parameter);

// weight += scale * B A, all f32, dense, in host memory: weight [out, in], a [rank, in], b [out,
// rank].
void merge_adapter(const View& weight, const View& a, const View& b, double scale);

}  // namespace shale::nn
