#pragma once

#include <span>
#include <string>

#include "shale/models/plan/time/plan_time.h"

namespace shale::models {

// What a step of a run comes to on a cluster.
struct PlannedStep {
  double seconds = 0;
  // Where they go, on the rank that has most to do: the parts add up to `seconds`.
  double products = 0;  // matrix products, those of experts too
  double attention = 0;
  double others = 0;         // kernels whose time is their traffic
  double host = 0;           // between kernels, where they are measured
  double slowed = 0;         // by collectives beside them
  double exposed_data = 0;   // waiting for parameters and gradients
  double exposed_model = 0;  // waiting inside layers: tensor, context and expert parallelism
  double exposed_host = 0;   // waiting for what is offloaded
  double bubble = 0;         // waiting for other stages
  std::array<double, kBases> by_basis{};  // of the whole: shares that add up to 1
  // How well the parts are known: of kernels' what was measured, of waits for collectives what is
  // fitted.
  double products_measured = 0, attention_measured = 0, others_measured = 0;
  double data_fitted = 0, model_fitted = 0;

  double items = 0;       // of the step, by all ranks: tokens
  double flops = 0;       // forward and backward of the model, without recomputation
  double peak_flops = 0;  // of all devices
  double mfu() const { return flops / (seconds * peak_flops); }
};

// Throws ConfigError for a run whose time on these machines no plan knows.
void check_times(const RunConfig& config, const Cluster& cluster);

// Of the first rank of each stage, in order, planned with machines. In a pipeline every rank does
// its list of actions in the times that its own clock gave them, and waits for messages
// (comm/parallel/pipeline/simulate.h); what a rank does besides comes on top.
PlannedStep planned_step(const RunConfig& config, const SampleUnit& unit, const Cluster& cluster,
                         std::span<const TimedRank> stages, int ranks);

// A line of JSON: of each part its seconds ("products_s") and how they are known
// ("products_known"), and shares.
std::string to_json(const PlannedStep& step);

// What it costs: lines for people, with where the time goes, and how well that is known.
std::string describe(const PlannedStep& step, const Cluster& cluster, const SampleUnit& unit,
                     int ranks);

}  // namespace shale::models
