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

// What --beta1, --beta2, --eps and --momentum are if they are not given; nothing where there is no
// such thing.
struct Defaults {
  std::optional<float> beta1, beta2, eps, momentum;
};

Defaults defaults_of(OptimizerKind kind) {
  const optim::AdamWOptions adamw;
  const optim::LionOptions lion;
  switch (kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdamWBF16:
    case OptimizerKind::kAdamW8bit:
    case OptimizerKind::kOneBitAdam: return {adamw.beta1, adamw.beta2, adamw.eps, {}};
    case OptimizerKind::kLion: return {lion.beta1, lion.beta2, {}, {}};
    case OptimizerKind::kAdafactor: return {{}, {}, optim::AdafactorOptions().eps, {}};
    case OptimizerKind::kSgd: return {{}, {}, {}, optim::SgdOptions().momentum};
    case OptimizerKind::kLamb: {
      const optim::LambOptions lamb;
      return {lamb.beta1, lamb.beta2, lamb.eps, {}};
    }
    case OptimizerKind::kMuon:
      return {adamw.beta1, adamw.beta2, adamw.eps, optim::MuonOptions().momentum};
  }
  return {};
}

void fill_in(const char* flag, double& value, std::optional<float> initial) {
  if (value >= 0 && !initial) {
    throw ConfigError(
        cat(flag, " is ", value, ", and the optimizer has no such thing; want it left out"));
  }
  // As people write it, so that a flag may say what a checkpoint has.
  if (value < 0 && initial) value = parse_real(format_real(*initial)).value();
}

// By their names: a parameter may be that of another mesh rank's model.
bool is_inside(const Parameter& parameter, const std::vector<std::string>& units) {
  const std::string name = parameter.full_name();
  return std::any_of(units.begin(), units.end(), [&](const std::string& unit) {
    return name.starts_with(unit) && name[unit.size()] == '.';
  });
}

const Module& root_of(const Module& module) {
  return module.parent() == nullptr ? module : root_of(*module.parent());
}

// Patterns are for the whole model, of which a stage of a pipeline has some parameters.
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
      .scale = config.muon_scale,
      .matrices = [names](const Parameter& parameter) { return is_inside(parameter, names); },
      .adamw = {.beta1 = static_cast<float>(config.beta1),
                .beta2 = static_cast<float>(config.beta2),
                .eps = static_cast<float>(config.eps)}};
  return std::make_unique<optim::Muon>(std::move(shards), options);
}

std::unique_ptr<optim::Optimizer> make_adamw(const RunConfig& config,
                                             std::vector<OptimShard> shards,
                                             optim::Moments moments) {
  return std::make_unique<optim::AdamW>(
      std::move(shards), optim::AdamWOptions{.beta1 = static_cast<float>(config.beta1),
                                             .beta2 = static_cast<float>(config.beta2),
                                             .eps = static_cast<float>(config.eps),
                                             .weight_decay = float(config.weight_decay),
                                             .moments = moments});
}

std::unique_ptr<optim::Optimizer> make_lamb(const RunConfig& config,
                                            std::vector<OptimShard> shards) {
  return std::make_unique<optim::Lamb>(
      std::move(shards), optim::LambOptions{.beta1 = static_cast<float>(config.beta1),
                                            .beta2 = static_cast<float>(config.beta2),
                                            .eps = static_cast<float>(config.eps),
                                            .weight_decay = float(config.weight_decay),
                                            .trust_min = static_cast<float>(config.trust_min),
                                            .trust_max = static_cast<float>(config.trust_max)});
}

void check_trust(const RunConfig& config) {
  if (config.trust_min <= config.trust_max) return;
  throw ConfigError(
      cat("--trust-min is ", config.trust_min, ", want at most --trust-max, ", config.trust_max));
}

}  // namespace

void resolve_optimizer(RunConfig& config) {
  const Defaults defaults = defaults_of(config.optimizer);
  fill_in("--beta1", config.beta1, defaults.beta1);
  fill_in("--beta2", config.beta2, defaults.beta2);
  fill_in("--eps", config.eps, defaults.eps);
  fill_in("--momentum", config.momentum, defaults.momentum);
  check_trust(config);
  parse_parameter_groups(config.param_groups);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 const std::vector<Module*>& units,
                                                 std::vector<OptimShard> shards) {
  set_group_options(parse_parameter_groups(config.param_groups), shards);
  const auto decay = static_cast<float>(config.weight_decay);
  switch (config.optimizer) {
    case OptimizerKind::kAdamW: return make_adamw(config, std::move(shards), optim::Moments::kF32);
    case OptimizerKind::kAdamWBF16:
      return make_adamw(config, std::move(shards), optim::Moments::kBF16);
    case OptimizerKind::kAdamW8bit:
      return make_adamw(config, std::move(shards), optim::Moments::kInt8);
    case OptimizerKind::kLion:
      return std::make_unique<optim::Lion>(
          std::move(shards), optim::LionOptions{.beta1 = static_cast<float>(config.beta1),
                                                .beta2 = static_cast<float>(config.beta2),
                                                .weight_decay = decay});
    case OptimizerKind::kAdafactor:
      return std::make_unique<optim::Adafactor>(
          std::move(shards),
          optim::AdafactorOptions{.eps = static_cast<float>(config.eps), .weight_decay = decay});
    case OptimizerKind::kSgd:
      return std::make_unique<optim::Sgd>(
          std::move(shards),
          optim::SgdOptions{.momentum = float(config.momentum), .weight_decay = decay});
    case OptimizerKind::kMuon: return make_muon(config, units, std::move(shards));
    case OptimizerKind::kLamb: return make_lamb(config, std::move(shards));
    case OptimizerKind::kOneBitAdam:
      return std::make_unique<optim::OneBitAdam>(
          std::move(shards), optim::OneBitAdamOptions{.beta1 = static_cast<float>(config.beta1),
                                                      .beta2 = static_cast<float>(config.beta2),
                                                      .eps = static_cast<float>(config.eps),
                                                      .weight_decay = decay,
                                                      .freeze_step = config.freeze_step});
  }
  throw InternalError("optimizer: of a kind that is not known here");
}

}  // namespace shale::models
