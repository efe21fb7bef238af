#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shale/comm/parallel/data/flat_layout.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/comm/parallel/pipeline/schedule.h"
#include "shale/runtime/nn/piece.h"

namespace shale::comm {

// Pieces [first, end) of a model.
struct PieceRange {
  int first = 0;
  int end = 0;
};

// Which rank of a pipeline does what, and when.
struct StagePlan {
  Schedule schedule;
  std::vector<PieceRange> stages;  // in the order of the model

  const StagePlacement& placement() const { return schedule.placement; }
  const PieceRange& pieces_of(int rank, int chunk) const {
    return stages[static_cast<size_t>(placement().stage_of(rank, chunk))];
  }
  int loss_rank() const { return placement().rank_of(placement().stages() - 1); }
};

// Numbers of pieces of so many stages, at least one each, whose costliest stage costs least; of
// several such splits the one whose first stages have fewer pieces. Throws ConfigError for fewer
// pieces than stages.
std::vector<int> split_by_cost(std::span<const nn::Piece> pieces, int stages);

// The plan of a schedule, which simulate() has proven to end with one slot. split: numbers of pieces
// of the stages; empty: split_by_cost(). Throws ConfigError for a split that is not one of these
// pieces, and what simulate() throws.
StagePlan make_stage_plan(std::span<const nn::Piece> pieces, Schedule schedule,
                          const std::vector<int>& split = {});

// The units of data parallelism of a rank's pieces: those of pieces, and for pieces of the root a
// part of the root each. Of a parameter of two pieces on one rank the second has the gradient of
// its own use alone (UnitPlan::apart). Throws InternalError for a parameter of two pieces that is
// not Parameter::tied.
std::vector<UnitPlan> stage_units(Module& root, std::span<const nn::Piece> pieces,
                                  const StagePlan& plan, int rank);

// What data parallelism is told of the stages, and its groups.
class StageGroups {
 public:
  // pipeline: the ranks of a pipeline, in order; whole: see PipelineStages. Both outlive this.
  // Collective over `pipeline`.
  StageGroups(ProcessGroup& pipeline, ProcessGroup& whole, std::span<const nn::Piece> pieces,
              const StagePlan& plan);
  const PipelineStages& stages() const { return stages_; }

  // Further models of this process (HostedModels) have their stages where the first one has.
  void add_models(const std::vector<Module*>& models);

 private:
  PipelineStages stages_;
  std::unique_ptr<ProcessGroup> tie_;
};

}  // namespace shale::comm
