#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/runtime/nn/frozen.h"
#include "shale/runtime/nn/lora.h"

namespace shale::models {

// Which adapters are trained in place of the model's own weights.
struct LoraConfig {
  int64_t rank = 0;   // 0: none
  double alpha = -1;  // negative: 2 rank
  double dropout = 0;
  std::string targets = nn::kAllLinear;                // names, with commas between them
  std::string init;                                    // a folder of PEFT's; empty: new adapters
  nn::FrozenDType frozen = nn::FrozenDType::kCompute;  // how the model's own weights are kept
  bool export_merged = false;

  bool is_on() const { return rank > 0 || !init.empty(); }
};

// What an adapter is, as a folder of PEFT's says it.
struct AdapterShape {
  nn::LoraOptions options;
  std::vector<std::string> targets;
};

// What a checkpoint says of them besides: the name of their FrozenDType, if it is not kCompute.
inline constexpr const char* kFrozenFact = "frozen weights";

// Declares the flags, in a section of their own.
void describe(ConfigSpec& spec, LoraConfig& config);
// Of adapters that are on: the folder's, where there is one, else the flags'. Throws ConfigError
// for flags that contradict the folder, and as read_adapter_shape().
AdapterShape adapter_shape(const LoraConfig& config);

}  // namespace shale::models
