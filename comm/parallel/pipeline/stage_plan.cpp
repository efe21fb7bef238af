#include "shale/comm/parallel/pipeline/stage_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "shale/base/error.h"
#include "shale/comm/parallel/pipeline/simulate.h"

namespace shale::comm {
namespace {

std::string names_of(std::span<const nn::Piece> pieces) {
  return cat(pieces.size(), " pieces, ", pieces.empty() ? "" : pieces.front().name, " to ",
             pieces.empty() ? "" : pieces.back().name);
}

// Calls `visit` for the pieces of all stages of a rank, chunk by chunk.
template <typename Visit>
void for_each_piece(std::span<const nn::Piece> pieces, const StagePlan& plan, int rank,
                    const Visit& visit) {
  for (int chunk = 0; chunk < plan.placement().chunks; ++chunk) {
    const auto [first, end] = plan.pieces_of(rank, chunk);
    for (int i = first; i < end; ++i) visit(pieces[static_cast<size_t>(i)], chunk);
  }
}

}  // namespace

std::vector<int> split_by_cost(std::span<const nn::Piece> pieces, int stages) {
  const auto count = static_cast<int>(pieces.size());
  if (count < stages) {
    throw ConfigError(cat("pipeline: the model has ", names_of(pieces),
                          ", expected at least one for ", "each of ", stages, " stages"));
  }
  std::vector<double> before = {0};
  for (const nn::Piece& piece : pieces) before.push_back(before.back() + piece.cost);
  const auto cost = [&](int first, int end) {
    return before[static_cast<size_t>(end)] - before[static_cast<size_t>(first)];
  };
  // best[s][n]: the first n pieces are split into s stages so that the costliest stage costs least;
  // this is its cost.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(
      static_cast<size_t>(stages) + 1, std::vector<double>(static_cast<size_t>(count) + 1, kNone));
  std::vector<std::vector<int>> begin(best.size(), std::vector<int>(best.front().size()));
  best[0][0] = 0;
  for (size_t s = 1; s < best.size(); ++s) {
    for (int n = static_cast<int>(s); n <= count; ++n) {
      for (int first = static_cast<int>(s) - 1; first < n; ++first) {
        const double now = std::max(best[s - 1][static_cast<size_t>(first)], cost(first, n));
        if (now >= best[s][static_cast<size_t>(n)]) continue;
        best[s][static_cast<size_t>(n)] = now;
        begin[s][static_cast<size_t>(n)] = first;
      }
    }
  }
  std::vector<int> split(static_cast<size_t>(stages));
  int end = count;
  for (size_t s = static_cast<size_t>(stages); s > 0; --s) {
    const int first = begin[s][static_cast<size_t>(end)];
    split[s - 1] = end - first;
    end = first;
  }
  return split;
}

StagePlan make_stage_plan(std::span<const nn::Piece> pieces, Schedule schedule,
                          const std::vector<int>& given) {
  static_cast<void>(simulate(schedule));
  const int stages = schedule.placement.stages();
  const std::vector<int> split = given.empty() ? split_by_cost(pieces, stages) : given;
  const bool positive = std::all_of(split.begin(), split.end(), [](int n) { return n > 0; });
  if (static_cast<int>(split.size()) != stages || !positive ||
      std::accumulate(split.begin(), split.end(), int64_t{0}) != std::ssize(pieces)) {
    std::string text;
    for (const int n : split) text += cat(text.empty() ? "" : ",", n);
    throw ConfigError(cat("pipeline: the split ", text, " of a model of ", names_of(pieces),
                          ": expected ", stages, " numbers of 1 or more that add up to ",
                          pieces.size()));
  }
  StagePlan plan{.schedule = std::move(schedule), .stages = {}};
  int first = 0;
  for (const int count : split) {
    plan.stages.push_back({first, first + count});
    first += count;
  }
  return plan;
}

std::vector<UnitPlan> stage_units(Module& root, std::span<const nn::Piece> pieces,
                                  const StagePlan& plan, int rank) {
  std::map<const Parameter*, int> uses;  // number of uses in the whole model
  for (const nn::Piece& piece : pieces) {
    for (const Parameter* parameter : piece.parameters) ++uses[parameter];
  }
  std::vector<UnitPlan> units;
  std::set<const Parameter*> here;
  for_each_piece(pieces, plan, rank, [&](const nn::Piece& piece, int chunk) {
    UnitPlan unit{.module = piece.unit != nullptr ? piece.unit : &root, .parameters = {}};
    if (piece.unit == nullptr) unit.part = piece.name;
    unit.chunk = chunk;
    for (Parameter* parameter : piece.parameters) {
      const bool first = here.insert(parameter).second;
      if (uses[parameter] > 1) {
        if (!parameter->tied || uses[parameter] > 2) {
          throw InternalError(
              cat("pipeline: ", parameter->full_name(), " is used by ", uses[parameter],
                  " pieces, expected one piece, or two for a tied embedding table"));
        }
        if (parameter->trainable) unit.tied.insert(parameter);
      }
      if (first) {
        unit.parameters.push_back(parameter);
      } else if (parameter->trainable) {
        unit.apart.push_back(parameter);
      }
    }
    units.push_back(std::move(unit));
  });
  return units;
}

StageGroups::StageGroups(ProcessGroup& pipeline, ProcessGroup& whole,
                         std::span<const nn::Piece> pieces, const StagePlan& plan) {
  stages_.group = &pipeline;
  stages_.whole = &whole;
  std::set<int> ties;
  for (int rank = 0; rank < plan.placement().ranks; ++rank) {
    for_each_piece(pieces, plan, rank, [&](const nn::Piece& piece, int) {
      for (const Parameter* parameter : piece.parameters) {
        std::vector<int>& holders = stages_.holders[parameter];
        if (holders.empty() || holders.back() != rank) holders.push_back(rank);
        if (holders.size() > 1) ties.insert(holders.begin(), holders.end());
      }
    });
  }
  if (ties.empty()) return;
  std::vector<int> colors;
  for (int rank = 0; rank < pipeline.size(); ++rank) {
    colors.push_back(ties.contains(rank) ? 0 : 1 + rank);
  }
  tie_ = pipeline.split(colors, "tied table");
  if (ties.contains(pipeline.rank())) stages_.tie = tie_.get();
}

void StageGroups::add_models(const std::vector<Module*>& models) {
  const std::vector<Parameter*> first = models.front()->parameters();
  for (const Module* model : models) {
    const std::vector<Parameter*> parameters = model->parameters();
    for (size_t i = 0; i < first.size(); ++i) {
      const auto found = stages_.holders.find(first[i]);
      if (found != stages_.holders.end()) stages_.holders[parameters[i]] = found->second;
    }
  }
}

}  // namespace shale::comm
