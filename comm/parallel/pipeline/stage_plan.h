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

// Assignment of a model's pieces to pipeline stages, with the schedule.
struct StagePlan {
  Schedule schedule;
  std::vector<PieceRange> stages;  // pieces of each pipeline stage, in model order

  const StagePlacement& placement() const { return schedule.placement; }
  const PieceRange& pieces_of(int rank, int chunk) const {
    return stages[static_cast<size_t>(placement().stage_of(rank, chunk))];
  }
  int loss_rank() const { return placement().rank_of(placement().stages() - 1); }
};

// Splits pieces into stages of at least one piece. Minimises the cost of the costliest stage; among
// equal splits, takes the one whose first stages have fewer pieces. Returns the numbers of pieces.
// Throws ConfigError if there are fewer pieces than stages.
std::vector<int> split_by_cost(std::span<const nn::Piece> pieces, int stages);

// Makes a plan, and checks with simulate() that the schedule finishes with one slot. split: numbers
// of pieces per stage; empty: split_by_cost(). Throws ConfigError if split does not match the
// pieces, and what simulate() throws.
StagePlan make_stage_plan(std::span<const nn::Piece> pieces, Schedule schedule,
                          const std::vector<int>& split = {});

// Returns the data-parallel units of a rank's pieces. They are the units inside the pieces; a piece
// of the root module forms a part of the root's unit. If two pieces on one rank share a parameter,
// the gradient of the second piece is kept separately (UnitPlan::apart). Throws InternalError for a
// parameter that two pieces share unless it is Parameter::tied.
std::vector<UnitPlan> stage_units(Module& root, std::span<const nn::Piece> pieces,
                                  const StagePlan& plan, int rank);

// Tells data parallelism about the pipeline stages and their process groups.
class StageGroups {
 public:
  // pipeline: the ranks of a pipeline, in order. whole: see PipelineStages. Both must outlive this
  // object. Collective over `pipeline`.
  StageGroups(ProcessGroup& pipeline, ProcessGroup& whole, std::span<const nn::Piece> pieces,
              const StagePlan& plan);
  const PipelineStages& stages() const { return stages_; }

  // Adds the other models in this process (HostedModels), which have the same stages as the first
  // one.
  void add_models(const std::vector<Module*>& models);

 private:
  PipelineStages stages_;
  std::unique_ptr<ProcessGroup> tie_;
};

}  // namespace shale::comm
