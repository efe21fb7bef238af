#include "shale/models/training/make_optimizer.h"

#include "shale/base/error.h"
#include "shale/runtime/optim/adafactor.h"

namespace shale::models {
namespace {

std::unique_ptr<optim::Optimizer> make_adamw(const RunConfig& config,
                                             std::vector<OptimShard> shards,
                                             optim::Moments moments) {
  return std::make_unique<optim::AdamW>(
      std::move(shards),
      optim::AdamWOptions{.weight_decay = float(config.weight_decay), .moments = moments});
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 std::vector<OptimShard> shards) {
  const auto decay = static_cast<float>(config.weight_decay);
  switch (config.optimizer) {
    case OptimizerKind::kAdamW: return make_adamw(config, std::move(shards), optim::Moments::kF32);
    case OptimizerKind::kAdamWBF16:
      return make_adamw(config, std::move(shards), optim::Moments::kBF16);
    case OptimizerKind::kAdamW8bit:
      return make_adamw(config, std::move(shards), optim::Moments::kInt8);
    case OptimizerKind::kLion:
      return std::make_unique<optim::Lion>(std::move(shards),
                                           optim::LionOptions{.weight_decay = decay});
    case OptimizerKind::kAdafactor:
      return std::make_unique<optim::Adafactor>(std::move(shards),
                                                optim::AdafactorOptions{.weight_decay = decay});
    case OptimizerKind::kSgd:
      return std::make_unique<optim::Sgd>(
          std::move(shards),
          optim::SgdOptions{.momentum = float(config.momentum), .weight_decay = decay});
  }
  throw InternalError("optimizer: of a kind that is not known here");
}

}  // namespace shale::models
