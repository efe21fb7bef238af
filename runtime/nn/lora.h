#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/runtime/nn/layers.h"

namespace shale::nn {

// Options of LoRA adapters of linear layers (Hu et al., arXiv:2106.09685).
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;  // probability of dropout on an adapter's input
  // true: scale alpha / sqrt(rank) (arXiv:2312.03732); false: alpha / rank
  bool rank_stabilized = false;

  // Returns the factor of the adapter's result, which depends on rank_stabilized.
  double scale() const;
};

// LoRA adapter: adds scale * B A x to the result of a layer [out, in]. A is "lora_A.weight" [rank,
// in], initially random. B is "lora_B.weight" [out, rank], initially zero. Both are in child
// modules of the layer.
class Lora {
 public:
  // The layer must outlive this adapter.
  Lora(LinearWeights& layer, const LoraOptions& options, uint32_t dropout_site);
  // Returns y + scale * B A dropout(x). x: [..., in], y: [..., out].
  Tensor forward(const Tensor& x, const Tensor& y) const;

  LinearWeights a, b;

 private:
  LoraOptions options_;
  uint32_t dropout_site_;
};

// Target that selects all linear layers.
inline constexpr const char* kAllLinear = "all-linear";

// Adds adapters to the tree's linear layers that match one of the targets, and freezes all other
// parameters. A layer matches
//
// - if the target is its full name, or the end of its full name after a "." ("q_proj",
//   "self_attn.q_proj");
// - if the target ends with "." and the layer's full name (such as "model." and the full name);
// - if the target is "all-linear" and the layer can have an adapter.
//
// Returns the layers in tree order. Throws ConfigError for invalid sizes, and for a target that no
// layer matches, with the names of the layers.
std::vector<LinearWeights*> add_adapters(Module& root, const LoraOptions& options,
                                         const std::vector<std::string>& targets);
// Returns the layers of a tree that have adapters, in tree order.
std::vector<LinearWeights*> adapted_layers(Module& root);

// True if the parameter is an A or a B of an adapter.
bool is_of_adapter(const Parameter& parameter);

// Computes weight += scale * B A on dense f32 tensors in host memory: weight [out, in], a [rank,
// in], b [out, rank].
void merge_adapter(const View& weight, const View& a, const View& b, double scale);

}  // namespace shale::nn
