#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::models {

// Properties of an optimizer for training programs; a row of optimizers().
struct OptimizerRow {
  OptimizerKind kind;
  std::string_view name;  // value of --optimizer
  std::string_view help;  // text for --help: bytes of states per parameter, and purpose
  // Defaults of --beta1, --beta2, --eps and --momentum; empty if the optimizer has no such option.
  std::optional<float> beta1, beta2, eps, momentum;
  std::unique_ptr<optim::Optimizer> (*make)(const RunConfig& config,
                                            const std::vector<Module*>& units,
                                            std::vector<OptimShard> shards);
  // True: the optimizer needs whole matrices, so tensor ranks join their shards
  // (ParallelOptions::joins_matrices).
  bool joins_matrices = false;
  // True: the optimizer sums statistics of whole matrices over ranks, which requires --zero 1 with
  // expert parallelism.
  bool adds_statistics = false;
};
std::span<const OptimizerRow> optimizers();
const OptimizerRow& optimizer_row(OptimizerKind kind);

// Fills in the betas, momentum and eps that are not given. Throws ConfigError if one is given that
// --optimizer does not support, and for invalid --param-groups.
void resolve_optimizer(RunConfig& config);

// Makes the optimizer that resolved options select. units: the repeated layers of the model, whose
// matrices --optimizer muon orthogonalizes. Throws ConfigError for parameter groups that match no
// parameter. Throws what the optimizers throw.
std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config,
                                                 const std::vector<Module*>& units,
                                                 std::vector<OptimShard> shards);

}  // namespace shale::models
