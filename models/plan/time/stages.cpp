#include "shale/models/plan/time/stages.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/slow_links.h"

namespace shale::models {
namespace {

// Number of micro-batches; further ones take as long as the middle one.
constexpr int64_t kFewMicroBatches = 3;
constexpr int64_t kFewSteps = 2;  // number of steps; from the second on, all optimizer states exist

// Returns a key for the location of the stage that starts with `rank`. Stages with equal keys have
// equal links. If stages and replicas are aligned with nodes, the key only says whether the next
// and the previous stage are in the same node.
std::vector<double> place_of_stage(const RunConfig& config, int ranks, int of_node, int rank) {
  const comm::ParallelSizes sizes = parallel_sizes(config, ranks);
  const int of_stage = sizes.shard * sizes.context * sizes.tensor;
  const int of_replica = of_stage * sizes.pipeline;
  const auto fits = [&](int count) { return count % of_node == 0 || of_node % count == 0; };
  const bool is_aligned = fits(of_stage) && (sizes.replica == 1 || fits(of_replica));
  const auto is_beside = [&](int other) { return double(other / of_node == rank / of_node); };
  return {is_aligned ? -1.0 : double(rank % of_node), is_beside(rank + of_stage),
          rank < of_stage ? 0.0 : is_beside(rank - of_stage)};
}

// Appends a stage's work to its key: for each chunk, the costs of its pieces, and whether it has
// the model's first or last piece. In the schedule zbv, stages hold different numbers of
// activations, so the key also has the stage.
void add_work(std::vector<double>& key, const std::vector<nn::Piece>& pieces,
              const comm::StagePlan& plan, int stage) {
  if (plan.placement().returns) key.push_back(stage);
  for (int chunk = 0; chunk < plan.placement().chunks; ++chunk) {
    const auto [first, end] = plan.pieces_of(stage, chunk);
    key.insert(key.end(), {-1, double(first == 0), double(size_t(end) == pieces.size())});
    for (int i = first; i < end; ++i) key.push_back(pieces[size_t(i)].cost);
  }
}

}  // namespace

std::vector<int> first_ranks_of_stages(const RunConfig& config, int ranks) {
  const comm::ParallelSizes sizes = parallel_sizes(config, ranks);
  std::vector<int> firsts;
  for (int stage = 0; stage < sizes.pipeline; ++stage) {
    firsts.push_back(stage * sizes.shard * sizes.context * sizes.tensor);
  }
  return firsts;
}

int64_t micro_batches(const RunConfig& config, int ranks) {
  const comm::ParallelSizes sizes = parallel_sizes(config, ranks);
  return config.global_batch / (config.micro_batch * sizes.replica * sizes.shard);
}

RunConfig shortened(const RunConfig& config, int ranks, bool measures) {
  RunConfig shorter = config;
  if (measures || config.profiles_memory()) return shorter;
  const int64_t all = micro_batches(shorter, ranks);
  const int64_t few = std::min(all, std::max<int64_t>(kFewMicroBatches, 2 * config.pipeline));
  shorter.global_batch = config.global_batch / all * few;
  if (config.eval_every == 0 && step_kinds(config).size() == 1) {
    shorter.steps = std::min(config.steps, kFewSteps);
  }
  return shorter;
}

std::vector<TimedRank> plan_stages(const RunConfig& config, const MakeTask& make_task, int ranks,
                                   const PlanMachines* machines) {
  const bool measures = machines != nullptr && machines->kernels.measures();
  const RunConfig shorter = shortened(config, ranks, measures);
  const int64_t all = micro_batches(config, ranks), few = micro_batches(shorter, ranks);
  const std::vector<int> firsts = first_ranks_of_stages(config, ranks);
  std::vector<size_t> kind_of(firsts.size());  // index in `kinds` of each stage's kind
  std::vector<int> kinds{firsts.front()};      // first rank of each kind of stage
  if (firsts.size() > 1) {
    const std::vector<nn::Piece> pieces = make_task()->pieces();
    const comm::StagePlan plan = comm::make_stage_plan(pieces, pipeline_schedule(shorter, few));
    const int of_node = machines != nullptr ? int(machines->cluster.devices_per_node) : ranks;
    std::map<std::vector<double>, size_t> known;
    kinds.clear();
    for (size_t stage = 0; stage < firsts.size(); ++stage) {
      std::vector<double> key = place_of_stage(config, ranks, of_node, firsts[stage]);
      add_work(key, pieces, plan, int(stage));
      const auto [at, is_new] = known.try_emplace(std::move(key), kinds.size());
      if (is_new) kinds.push_back(firsts[stage]);
      kind_of[stage] = at->second;
    }
  }
  const auto plan = [&](int rank) {
    const std::unique_ptr<Task> task = make_task();
    if (machines == nullptr) return TimedRank{plan_rank(shorter, *task, rank, ranks), {}};
    TimedRank planned = plan_time(shorter, *task, rank, ranks, *machines);
    if (few < all) planned.time = with_micro_batches(std::move(planned.time), few, all);
    return planned;
  };
  const std::vector<TimedRank> planned = at_once(kinds, plan,
                                                 measures              ? 1
                                                 : machines != nullptr ? machines->threads
                                                                       : kPlanThreads);
  std::vector<TimedRank> stages;
  for (const size_t kind : kind_of) stages.push_back(planned[kind]);
  return stages;
}

}  // namespace shale::models
