#include "shale/runtime/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"

namespace shale::nn {
namespace {

// First dropout site of adapters. It is far above the sites of models, which count from 0.
constexpr uint32_t kFirstSite = 1u << 24;

// Collects the layers of a subtree that can have an adapter.
void collect(Module& module, std::vector<LinearWeights*>& layers) {
  auto* layer = dynamic_cast<LinearWeights*>(&module);
  if (layer != nullptr && layer->is_adaptable) layers.push_back(layer);
  for (Module* child : module.children()) collect(*child, layers);
}

bool is_meant(const std::string& name, const std::string& target) {
  return target == kAllLinear || name == target || name.ends_with("." + target) ||
         target.ends_with("." + name);
}

void check(const LoraOptions& options) {
  if (options.rank < 1)
    throw ConfigError(cat("lora: rank is ", options.rank, ", expected 1 or more"));
  if (!(options.alpha > 0 && std::isfinite(options.alpha))) {
    throw ConfigError(cat("lora: alpha is ", options.alpha, ", expected a number above 0"));
  }
  if (!(options.dropout >= 0 && static_cast<float>(options.dropout) < 1)) {
    throw ConfigError(cat("lora: dropout is ", options.dropout, ", expected 0 to below 1"));
  }
}

// Returns initial values of A: normal, with the variance of PEFT's uniform distribution in +-1 /
// sqrt(in).
Init a_init(int64_t in) {
  return Init::normal(1 / std::sqrt(3 * static_cast<float>(in)));
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

Lora::Lora(LinearWeights& layer, const LoraOptions& options, uint32_t dropout_site)
    : a(&layer, "lora_A", layer.weight_shape()[1], options.rank, a_init(layer.weight_shape()[1]),
        Bias::kNo),
      b(&layer, "lora_B", options.rank, layer.weight_shape()[0], Init::zeros(), Bias::kNo),
      options_(options),
      dropout_site_(dropout_site) {
  // Shards B if the layer's weight is sharded by outputs, A if by inputs, and replicates the other
  // matrix.
  replicate({&a, &b});
  const Split& split = layer.weight.split;
  if (split.share == Share::kShard) (split.dim == 0 ? b : a).weight.split = split;
}

Tensor Lora::forward(const Tensor& x, const Tensor& y) const {
  const bool drops = options_.dropout > 0 && x.context().autograd().training;
  const Tensor in = drops ? dropout(x, static_cast<float>(options_.dropout), dropout_site_) : x;
  const Tensor low = scale(linear(in, a.weight.value), static_cast<float>(options_.scale()));
  return linear(low, b.weight.value, {}, y);
}

std::vector<LinearWeights*> add_adapters(Module& root, const LoraOptions& options,
                                         const std::vector<std::string>& targets) {
  check(options);
  std::vector<LinearWeights*> all, layers;
  collect(root, all);
  std::set<std::string> names;
  for (const LinearWeights* layer : all) names.insert(layer->name());
  std::string known;
  for (const std::string& name : names) known += cat(known.empty() ? "" : ", ", name);
  for (const std::string& target : targets) {
    const bool is_there = std::any_of(all.begin(), all.end(), [&](const LinearWeights* layer) {
      return is_meant(layer->full_name(), target);
    });
    if (is_there) continue;
    throw ConfigError(cat("lora: no layer is called '", target, "', expected ", kAllLinear,
                          " or some of ",
                          known.empty() ? "the model's layers (none supports adapters)" : known));
  }
  for (LinearWeights* layer : all) {
    const bool is_target = std::any_of(
        targets.begin(), targets.end(),
        [&](const std::string& target) { return is_meant(layer->full_name(), target); });
    if (is_target) layers.push_back(layer);
  }
  if (layers.empty())
    throw ConfigError(cat("lora: no targets, expected ", kAllLinear, " or names"));
  for (Parameter* parameter : root.parameters()) parameter->trainable = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i]->adapt(options, kFirstSite + static_cast<uint32_t>(i));
  }
  return layers;
}

std::vector<LinearWeights*> adapted_layers(Module& root) {
  std::vector<LinearWeights*> layers;
  collect(root, layers);
  std::erase_if(layers, [](const LinearWeights* layer) { return layer->adapter() == nullptr; });
  return layers;
}

bool is_of_adapter(const Parameter& parameter) {
  const auto* const layer = dynamic_cast<const LinearWeights*>(parameter.owner->parent());
  const Lora* const adapter = layer == nullptr ? nullptr : layer->adapter();
  return adapter != nullptr && (&adapter->a == parameter.owner || &adapter->b == parameter.owner);
}

void merge_adapter(const View& weight, const View& a, const View& b, double scale) {
  const int64_t out = weight.size(0), in = weight.size(1), rank = a.size(0);
  if (a.size(1) != in || b.size(0) != out || b.size(1) != rank) {
    throw ShapeError(cat("adapter: A is ", a, " and B ", b, ", which do not fit ", weight));
  }
  float* const values = weight.as<float>();
  const float* const as = a.as<float>();
  const float* const bs = b.as<float>();
  std::vector<double> row(static_cast<size_t>(in));
  for (int64_t i = 0; i < out; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      const double factor = scale * static_cast<double>(bs[i * rank + k]);
      for (int64_t j = 0; j < in; ++j) {
        row[static_cast<size_t>(j)] += factor * static_cast<double>(as[k * in + j]);
      }
    }
    for (int64_t j = 0; j < in; ++j) {
      float& value = values[i * in + j];
      value = static_cast<float>(static_cast<double>(value) + row[static_cast<size_t>(j)]);
    }
  }
}

}  // namespace shale::nn
