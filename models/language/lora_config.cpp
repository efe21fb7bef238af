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
           "train adapters of that rank (LoRA) and freeze the weights of --init; 0: train these",
           {.min = 0, .max = 1 << 16});
  spec.add("lora-alpha", c.alpha, "what they count: multiplied with alpha / rank",
           {.min = 0, .max = 1e6, .exclude_min = true, .help = {.default_text = "twice the rank"}});
  spec.add("lora-dropout", c.dropout, "of what goes into them",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("lora-targets", c.targets,
           "layers that have one, by the ends of their names, such as q_proj,v_proj; all-linear: "
           "all but the output layer",
           {.help = {.metavar = "NAMES"}});
  spec.add("lora-init", c.init, "begin with the adapters of a PEFT folder, which says their sizes",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change();
  spec.add_choice(
      "frozen-dtype", c.frozen,
      {{"auto", nn::FrozenDType::kCompute},
       {"bf16", nn::FrozenDType::kBF16},
       {"int8", nn::FrozenDType::kInt8},
       {"nf4", nn::FrozenDType::kNf4}},
      "how the frozen weights of linear layers are kept: in 16, 8 or 4 bits, the latter "
      "two with an f32 for every 64; auto: in --dtype");
  spec.add("export-merged", c.export_merged,
           "--export writes the model with its adapters added to its weights; else they alone are "
           "written, as PEFT's folder")
      .may_change();
  spec.needs("lora-alpha lora-dropout lora-targets frozen-dtype export-merged",
             "--lora-rank or --lora-init");
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
    throw ConfigError(
        cat(flag, " is ", wanted, ", the adapters in ", config.init, " have ", found));
  };
  const LoraConfig initial;
  compare("--lora-rank", config.rank > 0, config.rank, shape.options.rank);
  compare("--lora-alpha", config.alpha > 0, config.alpha, shape.options.alpha);
  if (config.targets != initial.targets && split(config.targets) != shape.targets) {
    throw ConfigError(cat("--lora-targets is ", config.targets, ", the adapters in ", config.init,
                          " have others; leave it out"));
  }
  shape.options.dropout = config.dropout;  // the dropout of this run, not the stored one
  return shape;
}

}  // namespace shale::models
