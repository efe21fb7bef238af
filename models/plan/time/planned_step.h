#pragma once

#include <span>
#include <string>

#include "shale/models/plan/time/plan_time.h"

namespace shale::models {

// Planned step of a run on a cluster.
struct PlannedStep {
  double seconds = 0;
  // Parts of `seconds` on the busiest rank; they add up to it.
  double products = 0;  // GEMMs, with those of experts
  double attention = 0;
  double others = 0;         // memory-bound kernels
  double host = 0;           // host time between kernels, if measured
  double slowed = 0;         // slowdown by concurrent collectives
  double exposed_data = 0;   // waiting for parameters and gradients
  double exposed_model = 0;  // waiting inside layers: tensor, context and expert parallelism
  double exposed_host = 0;   // waiting for offloaded tensors
  double bubble = 0;         // waiting for other pipeline stages
  std::array<double, kBases> by_basis{};  // shares of `seconds` by basis; their sum is 1
  // Seconds of the parts above that are better known: measured kernels, and waits for fitted
  // collectives.
  double products_measured = 0, attention_measured = 0, others_measured = 0;
  double data_fitted = 0, model_fitted = 0;

  double items = 0;       // tokens (or other items) in the step, of all ranks
  double flops = 0;       // forward and backward of the model, without recomputation
  double peak_flops = 0;  // FLOP/s of all devices together
  double mfu() const { return flops / (seconds * peak_flops); }
};

// Throws ConfigError for a run whose time cannot be planned for these machines.
void check_times(const RunConfig& config, const Cluster& cluster);

// Combines the planned first rank of each stage, in order. In a pipeline each rank runs its list of
// actions with the times of its own simulated clock, and waits for messages
// (comm/parallel/pipeline/simulate.h); its other work is added.
PlannedStep planned_step(const RunConfig& config, const SampleUnit& unit, const Cluster& cluster,
                         std::span<const TimedRank> stages, int ranks);

// Returns JSON in one line: seconds ("products_s") and basis ("products_known") of parts; shares.
std::string to_json(const PlannedStep& step);

// Describes the time and cost of the step in lines for people: its parts, and how well each is
// known.
std::string describe(const PlannedStep& step, const Cluster& cluster, const SampleUnit& unit,
                     int ranks);

}  // namespace shale::models
