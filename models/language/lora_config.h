#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/runtime/nn/frozen.h"
#include "shale/runtime/nn/lora.h"

namespace shale::models {

// Options of adapters (LoRA), which are trained instead of the model's own weights.
struct LoraConfig {
  int64_t rank = 0;   // 0: no adapters
  double alpha = -1;  // negative: 2 * rank
  double dropout = 0;
  std::string targets = nn::kAllLinear;                // comma-separated layer names
  std::string init;                                    // PEFT folder; empty: new adapters
  // Storage of the model's own weights, which are frozen.
  nn::FrozenDType frozen = nn::FrozenDType::kCompute;

  bool is_on() const { return rank > 0 || !init.empty(); }
};

// Shape of adapters, as a PEFT folder describes it.
struct AdapterShape {
  nn::LoraOptions options;
  std::vector<std::string> targets;
};

// Key in RunDescription::values for the dtype of frozen weights. Not stored if the dtype is
// kCompute.
inline constexpr const char* kFrozenFact = "frozen weights";

// Declares the flags of `config` in their own section.
void describe(ConfigSpec& spec, LoraConfig& config);
// Returns the shape of the adapters that `config` enables: that of the PEFT folder if there is one,
// otherwise that of the flags. Throws ConfigError for flags that contradict the folder, and as
// read_adapter_shape().
AdapterShape adapter_shape(const LoraConfig& config);

}  // namespace shale::models
