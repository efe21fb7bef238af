#include "shale/models/plan/time/planned_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

// Returns the seconds of a step in which the pipeline's busiest rank waits for others. Simulates
// the pipeline; each stage's actions take the times that its own clock measured.
double pipeline_bubble(const RunConfig& config, std::span<const TimedRank> stages, int ranks) {
  const DataRanks data = data_ranks(config, parallel_layout(config, ranks), 0);
  const comm::Schedule schedule =
      pipeline_schedule(config, batch_layout(config, data.count).micro_batches(0));
  comm::SimulationOptions options{.slots = StepPipeline().slots};
  options.times.resize(size_t(schedule.placement.stages()));
  double most = 0;
  for (int rank = 0; rank < schedule.placement.ranks; ++rank) {
    const RankTime& time = stages[size_t(rank)].time;
    options.message = std::max(options.message, time.message);
    most = std::max(most, time.acting);
    for (const auto& [chunk, times] : time.chunks) {
      options.times[size_t(schedule.placement.stage_of(rank, chunk))] = times;
    }
  }
  return comm::simulate(schedule, options).makespan - most;
}

// Part of a step's time: JSON key, and name in text.
struct Part {
  const char* key;  // ends with "_s"
  const char* words;
  double seconds;
  std::string known;  // text that says how the time was found
};

// Describes how much of a part's time is measured or fitted, i.e. better known than from data
// sheets.
std::string known(double seconds, double better, Basis basis) {
  const auto percent = int(100 * better / std::max(seconds, 1e-30) + 0.5);
  if (percent == 0) return basis_name(Basis::kExtrapolated);
  return percent == 100 ? basis_name(basis) : cat(percent, "% ", basis_name(basis));
}

std::array<Part, 9> parts_of(const PlannedStep& step) {
  constexpr Basis kMeasured = Basis::kMeasured, kFitted = Basis::kFitted;
  return {
      {{"products_s", "GEMMs", step.products,
        known(step.products, step.products_measured, kMeasured)},
       {"attention_s", "attention", step.attention,
        known(step.attention, step.attention_measured, kMeasured)},
       {"others_s", "other kernels", step.others,
        known(step.others, step.others_measured, kMeasured)},
       {"host_s", "between kernels", step.host, basis_name(kMeasured)},
       {"slowed_s", "kernels slowed by collectives", step.slowed, basis_name(Basis::kExtrapolated)},
       {"exposed_data_s", "waiting for parameters and gradients", step.exposed_data,
        known(step.exposed_data, step.data_fitted, kFitted)},
       {"exposed_model_s", "waiting for other tensor, context or expert ranks", step.exposed_model,
        known(step.exposed_model, step.model_fitted, kFitted)},
       {"exposed_host_s", "waiting for copies from the host, and for the CPU step",
        step.exposed_host, basis_name(Basis::kExtrapolated)},
       {"bubble_s", "waiting for other pipeline stages", step.bubble, "as the stages' times"}}};
}

std::string text_of(const char* format, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

void check_times(const RunConfig& config, const Cluster& cluster) {
  if (config.dtype != Precision::kTf32 || !cluster.is_gpu) return;
  throw ConfigError(cat("--dtype tf32 on ", cluster.device,
                        ": cluster files have no tf32 throughput; use --dtype bf16 or fp32"));
}

PlannedStep planned_step(const RunConfig& config, const SampleUnit& unit, const Cluster& cluster,
                         std::span<const TimedRank> stages, int ranks) {
  const auto busiest = std::max_element(
      stages.begin(), stages.end(),
      [](const TimedRank& a, const TimedRank& b) { return a.time.total < b.time.total; });
  const RankTime& time = busiest->time;
  PlannedStep step{.seconds = time.total, .host = time.host, .slowed = time.slowed};
  for (const auto& [slot, seconds] : time.kernels) {
    const bool is_product = slot.ends_with("gemm") || slot.starts_with("conv");
    const auto found = time.measured.find(slot);
    const double measured = found == time.measured.end() ? 0 : found->second;
    const auto add = [&](double& sum, double& of_it) {
      sum += seconds;
      of_it += measured;
    };
    if (is_product) {
      add(step.products, step.products_measured);
    } else if (slot.starts_with("attention")) {
      add(step.attention, step.attention_measured);
    } else {
      add(step.others, step.others_measured);
    }
  }
  step.exposed_data = time.exposed[size_t(comm::Lane::kData)];
  step.exposed_model = time.exposed[size_t(comm::Lane::kModel)];
  step.exposed_host = time.exposed_host;
  step.data_fitted = time.fitted[size_t(comm::Lane::kData)];
  step.model_fitted = time.fitted[size_t(comm::Lane::kModel)];
  if (config.pipeline > 1) {
    step.bubble = pipeline_bubble(config, stages, ranks);
    step.seconds += step.bubble;
  }
  // Divides the time of waiting for other stages over the bases in the same ratio as the rank's own
  // work.
  for (size_t i = 0; i < kBases; ++i) step.by_basis[i] = time.by_basis[i] / time.total;
  step.items = double(config.global_batch) * double(unit.items_per_sample);
  step.flops = step.items * unit.flops_per_item;
  const bool is_f32 = config.dtype == Precision::kF32 || config.dtype == Precision::kTf32 ||
                      (config.dtype == Precision::kAuto && !cluster.is_gpu);
  step.peak_flops = double(ranks) * cluster.flops(is_f32 ? DType::kF32 : DType::kBF16);
  return step;
}

std::string to_json(const PlannedStep& step) {
  std::string text = "{";
  const auto add = [&](std::string_view name, double value) {
    text += cat(text.size() > 1 ? ", " : "", "\"", name, "\": ", format_real(value));
  };
  add("step_s", step.seconds);
  for (const auto& [key, words, seconds, known] : parts_of(step)) {
    add(key, seconds);
    text += cat(", \"", std::string_view(key, std::strlen(key) - 2), "_known\": \"", known, "\"");
  }
  add("items", step.items);
  add("flops", step.flops);
  add("mfu", step.mfu());
  for (int i = 0; i < kBases; ++i) add(basis_name(Basis(i)), step.by_basis[size_t(i)]);
  return text + "}";
}

std::string describe(const PlannedStep& step, const Cluster& cluster, const SampleUnit& unit,
                     int ranks) {
  const double rate = step.items / step.seconds;
  std::string text = cat("a step of ", std::llround(step.items), " ", unit.items, " on ", ranks,
                         " x ", cluster.device, ": ", text_of("%.4g s, ", step.seconds),
                         text_of(rate < 1000 ? "%.4g " : "%.0f ", rate), unit.item, "/s");
  if (step.flops > 0) {
    text += cat(", ", text_of("%.1f%% of the peak (MFU), ", 100 * step.mfu()),
                text_of("%.4g TFLOP/s a device", step.flops / step.seconds / ranks / 1e12));
  }
  text += "\n";
  for (const auto& [key, words, seconds, known] : parts_of(step)) {
    if (seconds == 0) continue;
    text += cat("  ", text_of("%8.1f ms", 1e3 * seconds),
                text_of("  %5.1f%%  ", 100 * seconds / step.seconds), words, " (", known, ")\n");
  }
  text += " ";
  for (int i = 0; i < kBases; ++i) {
    text += cat(i == 0 ? " " : ", ", text_of("%.0f%% ", 100 * step.by_basis[size_t(i)]),
                basis_name(Basis(i)));
  }
  text += "\n";
  const double device_hours_per_item = double(ranks) / rate / 3600;
  if (cluster.power_w > 0) {
    text += cat("  ", text_of("%.4g kWh", 1e9 * device_hours_per_item * cluster.power_w / 1e3),
                " for 1e9 ", unit.items, "\n");
  }
  if (cluster.price_per_hour > 0) {
    text += cat("  ", text_of("%.4g", 1e9 * device_hours_per_item * cluster.price_per_hour),
                " to pay for 1e9 ", unit.items, "\n");
  }
  return text;
}

}  // namespace shale::models
