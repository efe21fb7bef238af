#include "shale/models/language/lora_config.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/models/language/adapters.h"

namespace shale::models {
namespace {

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    if (end > begin) all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

}  // namespace

void describe(ConfigSpec& spec, LoraConfig& c) {
  spec.section("Adapters");
  spec.add("lora-rank", c.rank,
           "LoRA rank: train adapters and freeze the weights of --init; 0: train all weights",
           {.min = 0, .max = 1 << 16});
  spec.add("lora-alpha", c.alpha, "LoRA alpha: adapters are scaled by alpha / rank",
           {.min = 0, .max = 1e6, .exclude_min = true, .help = {.default_text = "twice the rank"}});
  spec.add("lora-dropout", c.dropout, "dropout probability of the input of adapters",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("lora-targets", c.targets,
           "layers with adapters, by the ends of their names, such as q_proj,v_proj; all-linear: "
           "all but the output layer",
           {.help = {.metavar = "NAMES"}});
  spec.add("lora-init", c.init,
           "start from a PEFT adapter folder, which sets rank, alpha and targets",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change();
  spec.add_choice("frozen-dtype", c.frozen,
                  {{"auto", nn::FrozenDType::kCompute},
                   {"bf16", nn::FrozenDType::kBF16},
                   {"int8", nn::FrozenDType::kInt8},
                   {"nf4", nn::FrozenDType::kNf4}},
                  "storage of frozen linear weights; int8, nf4: quantized with an fp32 scale per "
                  "64 values; auto: as --dtype");
  spec.needs("lora-alpha lora-dropout lora-targets frozen-dtype", "--lora-rank or --lora-init");
}

AdapterShape adapter_shape(const LoraConfig& config) {
  if (config.init.empty()) {
    return {
        .options = {.rank = config.rank,
                    .alpha = config.alpha > 0 ? config.alpha : 2 * static_cast<double>(config.rank),
                    .dropout = config.dropout},
        .targets = split(config.targets)};
  }
  AdapterShape shape = read_adapter_shape(config.init);
  const auto compare = [&](const char* flag, bool is_given, const auto& wanted, const auto& found) {
    if (!is_given || wanted == found) return;
    throw ConfigError(cat(flag, " is ", wanted, ", the adapters in ", config.init, " have ", found,
                          "; leave out ", flag));
  };
  const LoraConfig initial;
  compare("--lora-rank", config.rank > 0, config.rank, shape.options.rank);
  compare("--lora-alpha", config.alpha > 0, config.alpha, shape.options.alpha);
  if (config.targets != initial.targets && split(config.targets) != shape.targets) {
    throw ConfigError(cat("--lora-targets is ", config.targets, ", the adapters in ", config.init,
                          " have other targets; leave out --lora-targets"));
  }
  shape.options.dropout = config.dropout;  // not that of the stored adapters
  return shape;
}

}  // namespace shale::models
