#include "shale/models/training/make_optimizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/training/parameter_groups.h"
#include "shale/runtime/optim/adafactor.h"
#include "shale/runtime/optim/lamb.h"
#include "shale/runtime/optim/muon.h"
#include "shale/runtime/optim/one_bit_adam.h"

namespace shale::models {
namespace {

void fill_in(const char* flag, double& value, std::optional<float> initial) {
  if (value >= 0 && !initial) {
    throw ConfigError(cat(flag, " is ", value, ", which the optimizer does not use; leave it out"));
  }
  // Rounds the default to the value that messages show, so that users can pass exactly this value.
  if (value < 0 && initial) value = parse_real(format_real(*initial)).value();
}

// Compares names, because the parameter may belong to another mesh rank's copy of the model.
bool is_inside(const Parameter& parameter, const std::vector<std::string>& units) {
  const std::string name = parameter.full_name();
  return std::any_of(units.begin(), units.end(), [&](const std::string& unit) {
    return name.starts_with(unit) && name[unit.size()] == '.';
  });
}

const Module& root_of(const Module& module) {
  return module.parent() == nullptr ? module : root_of(*module.parent());
}

// Matches patterns against the parameters of the whole model, because a pipeline stage has only
// some of them.
void set_group_options(const std::vector<ParameterGroup>& groups, std::vector<OptimShard>& shards) {
  if (groups.empty() || shards.empty()) return;
  std::vector<OptimShard> whole(1);
  for (Parameter* parameter :
       root_of(*shards.front().spans.front().parameter->owner).parameters()) {
    if (parameter->trainable) whole.front().spans.push_back({.parameter = parameter});
  }
  for (const ParameterGroup& group : groups) {
    set_parameter_options(whole, group.pattern, group.options);
  }
  for (OptimShard& shard : shards) {
    for (OptimSpan& span : shard.spans) {
      const auto of_model = std::find_if(
          whole.front().spans.begin(), whole.front().spans.end(), [&](const OptimSpan& other) {
            return other.parameter->full_name() == span.parameter->full_name();
          });
      if (of_model != whole.front().spans.end()) span.options = of_model->options;
    }
  }
}

std::unique_ptr<optim::Optimizer> make_muon(const RunConfig& config,
                                            const std::vector<Module*>& units,
                                            std::vector<OptimShard> shards) {
  std::vector<std::string> names;
  for (const Module* unit : units) names.push_back(unit->full_name());
  optim::MuonOptions options{
      .momentum = static_cast<float>(config.momentum),
      .weight_decay = static_cast<float>(config.weight_decay),
      .matrices = [names](const Parameter& parameter) { return is_inside(parameter, names); },
      .adamw = {.beta1 = static_cast<float>(config.beta1),
                .beta2 = static_cast<float>(config.beta2),
                .eps = static_cast<float>(config.eps)}};
  return std::make_unique<optim::Muon>(std::move(shards), options);
}

using Shards = std::vector<OptimShard>;

template <optim::Moments kMoments>
std::unique_ptr<optim::Optimizer> make_adamw(const RunConfig& config, const std::vector<Module*>&,
                                             Shards shards) {
  return std::make_unique<optim::AdamW>(
      std::move(shards), optim::AdamWOptions{.beta1 = static_cast<float>(config.beta1),
                                             .beta2 = static_cast<float>(config.beta2),
                                             .eps = static_cast<float>(config.eps),
                                             .weight_decay = float(config.weight_decay),
                                             .moments = kMoments});
}

std::unique_ptr<optim::Optimizer> make_lion(const RunConfig& config, const std::vector<Module*>&,
                                            Shards shards) {
  return std::make_unique<optim::Lion>(
      std::move(shards), optim::LionOptions{.beta1 = static_cast<float>(config.beta1),
                                            .beta2 = static_cast<float>(config.beta2),
                                            .weight_decay = float(config.weight_decay)});
}

std::unique_ptr<optim::Optimizer> make_adafactor(const RunConfig& config,
                                                 const std::vector<Module*>&, Shards shards) {
  return std::make_unique<optim::Adafactor>(
      std::move(shards), optim::AdafactorOptions{.eps = static_cast<float>(config.eps),
                                                 .weight_decay = float(config.weight_decay)});
}

std::unique_ptr<optim::Optimizer> make_sgd(const RunConfig& config, const std::vector<Module*>&,
                                           Shards shards) {
  return std::make_unique<optim::Sgd>(
      std::move(shards), optim::SgdOptions{.momentum = float(config.momentum),
                                           .weight_decay = float(config.weight_decay)});
}

std::unique_ptr<optim::Optimizer> make_lamb(const RunConfig& config, const std::vector<Module*>&,
                                            Shards shards) {
  return std::make_unique<optim::Lamb>(
      std::move(shards), optim::LambOptions{.beta1 = static_cast<float>(config.beta1),
                                            .beta2 = static_cast<float>(config.beta2),
                                            .eps = static_cast<float>(config.eps),
                                            .weight_decay = float(config.weight_decay)});
}

std::unique_ptr<optim::Optimizer> make_one_bit_adam(const RunConfig& config,
                                                    const std::vector<Module*>&, Shards shards) {
  return std::make_unique<optim::OneBitAdam>(
      std::move(shards), optim::OneBitAdamOptions{.beta1 = static_cast<float>(config.beta1),
                                                  .beta2 = static_cast<float>(config.beta2),
                                                  .eps = static_cast<float>(config.eps),
                                                  .weight_decay = float(config.weight_decay),
                                                  .freeze_step = config.freeze_step});
}

std::vector<OptimizerRow> make_rows() {
  const optim::AdamWOptions adamw;
  const optim::LionOptions lion;
  const optim::LambOptions lamb;
  const auto adam = [&](OptimizerKind kind, std::string_view name, std::string_view help,
                        auto make) {
    return OptimizerRow{kind, name, help, adamw.beta1, adamw.beta2, adamw.eps, {}, make};
  };
  return {
      adam(OptimizerKind::kAdamW, "adamw", "8", make_adamw<optim::Moments::kF32>),
      adam(OptimizerKind::kAdamWBF16, "adamw-bf16", "4", make_adamw<optim::Moments::kBF16>),
      adam(OptimizerKind::kAdamW8bit, "adamw-8bit", "2", make_adamw<optim::Moments::kInt8>),
      {.kind = OptimizerKind::kLion,
       .name = "lion",
       .help = "4; use 1/3 of the lr and 3x the weight decay",
       .beta1 = lion.beta1,
       .beta2 = lion.beta2,
       .make = make_lion},
      {.kind = OptimizerKind::kAdafactor,
       .name = "adafactor",
       .help = "almost 0",
       .eps = optim::AdafactorOptions().eps,
       .make = make_adafactor,
       .joins_matrices = true,
       .adds_statistics = true},
      {.kind = OptimizerKind::kSgd,
       .name = "sgd",
       .help = "4, 0 without momentum",
       .momentum = optim::SgdOptions().momentum,
       .make = make_sgd},
      {.kind = OptimizerKind::kMuon,
       .name = "muon",
       .help = "4 for matrices in blocks, 8 for the rest (AdamW)",
       .beta1 = adamw.beta1,
       .beta2 = adamw.beta2,
       .eps = adamw.eps,
       .momentum = optim::MuonOptions().momentum,
       .make = make_muon,
       .joins_matrices = true},
      {.kind = OptimizerKind::kLamb,
       .name = "lamb",
       .help = "8; scales each matrix step by its norm, for large batches",
       .beta1 = lamb.beta1,
       .beta2 = lamb.beta2,
       .eps = lamb.eps,
       .make = make_lamb,
       .joins_matrices = true,
       .adds_statistics = true},
      adam(OptimizerKind::kOneBitAdam, "1bit-adam",
           "12 + 4 / replicas; 1-bit communication, see --freeze-step", make_one_bit_adam),
  };
}

}  // namespace

std::span<const OptimizerRow> optimizers() {
  static const std::vector<OptimizerRow> rows = make_rows();
  return rows;
}

const OptimizerRow& optimizer_row(OptimizerKind kind) {
  const auto rows = optimizers();
  return *std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.kind == kind; });
}

void resolve_optimizer(RunConfig& config) {
  const OptimizerRow& row = optimizer_row(config.optimizer);
  fill_in("--beta1", config.beta1, row.beta1);
  fill_in("--beta2", config.beta2, row.beta2);
  fill_in("--eps", config.eps, row.eps);
  fill_in("--momentum", config.momentum, row.momentum);
  parse_parameter_groups(config.param_groups);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 const std::vector<Module*>& units,
                                                 std::vector<OptimShard> shards) {
  set_group_options(parse_parameter_groups(config.param_groups), shards);
  return optimizer_row(config.optimizer).make(config, units, std::move(shards));
}

}  // namespace shale::models
