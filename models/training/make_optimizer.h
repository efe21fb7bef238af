#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::models {

// An optimizer as runs know it: a row of optimizers().
struct OptimizerRow {
  OptimizerKind kind;
  std::string_view name;  // in --optimizer
  std::string_view help;  // bytes of its states per parameter, and what it is for
  // What --beta1, --beta2, --eps and --momentum are if they are not given; nothing where there is
  // no such thing.
  std::optional<float> beta1, beta2, eps, momentum;
  std::unique_ptr<optim::Optimizer> (*make)(const RunConfig& config,
                                            const std::vector<Module*>& units,
                                            std::vector<OptimShard> shards);
  // It takes together what tensor ranks have of a matrix (ParallelOptions::joins_matrices).
  bool joins_matrices = false;
  // It adds statistics of whole matrices over ranks, which experts want with --zero 1 alone.
  bool adds_statistics = false;
};
std::span<const OptimizerRow> optimizers();
const OptimizerRow& optimizer_row(OptimizerKind kind);

// Fills in the rates and eps of --optimizer that were not given. Throws ConfigError for those that
// it has not, and for --param-groups that cannot be read.
void resolve_optimizer(RunConfig& config);

// The optimizer that --optimizer and its options, resolved, ask for. Throws ConfigError for groups
// that no parameter is in, and as optimizers do. units: the repeated parts of the model, whose
// matrices muon is for.
std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 const std::vector<Module*>& units,
                                                 std::vector<OptimShard> shards);

}  // namespace shale::models
