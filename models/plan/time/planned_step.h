#pragma once

#include <span>
#include <string>

#include "shale/models/plan/time/plan_time.h"

namespace shale::models {

// Planned step of a run on a cluster.
struct PlannedStep {
  double seconds = 0;
  // Parts of `seconds` on the busiest rank. Their sum is `seconds`.
  double products = 0;  // GEMMs, also those of experts
  double attention = 0;
  double others = 0;         // memory-bound kernels
  double host = 0;           // host time between kernels, if measured
  double slowed = 0;         // slowdown by concurrent collectives
  double exposed_data = 0;   // waiting for data-parallel collectives
  double exposed_model = 0;  // waiting for tensor, context and expert-parallel collectives
  double exposed_host = 0;   // waiting for offloaded tensors
  double bubble = 0;         // waiting for other pipeline stages
  std::array<double, kBases> by_basis{};  // fraction of `seconds` with each basis; their sum is 1
  // Seconds within the parts above that are better known than from data sheets: measured kernels,
  // and waits for fitted collectives.
  double products_measured = 0, attention_measured = 0, others_measured = 0;
  double data_fitted = 0, model_fitted = 0;

  double items = 0;       // tokens (or other items) that all ranks process in the step
  double flops = 0;       // FLOPs of forward and backward, without recomputation
  double peak_flops = 0;  // FLOP/s of all devices together
  double mfu() const { return flops / (seconds * peak_flops); }
};

// Throws ConfigError if the time of the run cannot be planned for this cluster.
void check_times(const RunConfig& config, const Cluster& cluster);

// Combines the plans of the stages' first ranks, in order of stages. In a pipeline, each rank runs
// its list of actions with the times of its own simulated clock, and waits for messages
// (comm/parallel/pipeline/simulate.h). Its work outside of these actions is added.
PlannedStep planned_step(const RunConfig& config, const SampleUnit& unit, const Cluster& cluster,
                         std::span<const TimedRank> stages, int ranks);

// Returns JSON in one line: seconds of each part (such as "products_s"), how well each is known
// ("products_known"), and fractions.
std::string to_json(const PlannedStep& step);

// Describes time and cost of the step in lines of text: its parts, and how well each is known.
std::string describe(const PlannedStep& step, const Cluster& cluster, const SampleUnit& unit,
                     int ranks);

}  // namespace shale::models
