// Fills in derived options, and rejects incompatible ones.
#include "shale/models/training/run_config.h"

#include <algorithm>
#include <cmath>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/parse.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/make_step.h"
#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/report/prometheus.h"
#include "shale/models/training/report/step_trace.h"
#include "shale/models/training/slow_links.h"

namespace shale::models {
namespace {

// Fills in options of the learning-rate schedule. A repeated call changes nothing.
void resolve_schedule(RunConfig& config) {
  using enum optim::Decay;
  if (config.warmup_steps < 0) config.warmup_steps = config.steps / 20;
  const bool is_wsd = optim::is_wsd(config.schedule);
  if (is_wsd && config.decay_steps < 0) config.decay_steps = config.steps / 5;
  if (is_wsd && config.decay_steps > config.steps - config.warmup_steps) {
    throw ConfigError(
        cat("--decay-steps is ", config.decay_steps,
            ", expected at most --steps - --warmup-steps = ", config.steps - config.warmup_steps));
  }
  const bool has_end = config.schedule != kConstant && config.schedule != kInverseSqrt;
  if (config.min_lr >= 0 && !has_end) {
    throw ConfigError(cat("--min-lr is ", config.min_lr,
                          ", but --schedule constant and inverse-sqrt have no final rate; "
                          "leave it out"));
  }
  if (config.schedule == kLinearToZero) {
    if (config.min_lr > 0) {
      throw ConfigError(cat("--min-lr is ", config.min_lr,
                            ", but --schedule linear-to-zero ends at 0; use --schedule linear"));
    }
    config.min_lr = 0;
  }
  if (config.min_lr < 0 && has_end) config.min_lr = config.lr / 10;
}

// Fills in batch sizes. data: number of data-parallel ranks.
void resolve_batch(RunConfig& config, int64_t data) {
  int64_t samples = 0;
  if (__builtin_mul_overflow(config.micro_batch, data, &samples)) {
    throw ConfigError(cat("--micro-batch is ", config.micro_batch, ", too large for ", data,
                          " ranks; use a smaller one"));
  }
  if (config.global_batch == 0) config.global_batch = samples;
}

// Sets `offload` and `offload_folder` from the text of --offload.
void resolve_offload(RunConfig& config) {
  constexpr std::string_view kDisk = "nvme:";
  const std::string& to = config.offload_to;
  if (to == "none") return;  // some callers set `offload` and no --offload
  if (to == "optimizer") {
    config.offload = OffloadKind::kOptimizer;
  } else if (to == "params") {
    config.offload = OffloadKind::kParameters;
  } else if (to.starts_with(kDisk) && names_a_path(to.substr(kDisk.size()))) {
    config.offload = OffloadKind::kParameters;
    config.offload_folder = to.substr(kDisk.size());
  } else {
    throw ConfigError(
        cat("--offload is ", excerpt(to), ", expected none, optimizer, params or nvme:DIR"));
  }
}

}  // namespace

void resolve(RunConfig& config, int ranks) {
  resolve_offload(config);
  const int here = parallel_degrees(config, ranks).here();
  if (here > 1) config.ranks_per_process = here;
  const comm::ParallelSizes sizes = parallel_sizes(config, ranks);
  const int64_t data = sizes.replica * sizes.shard;
  resolve_batch(config, data);
  batch_layout(config, data).validate();
  check_parallel(config, ranks);
  if (!config.prometheus.empty()) is_prometheus_file(config.prometheus);
  if (!config.trace.empty() && !config.profiles_memory()) trace_format(config.trace);
  if (!config.trace_steps.empty()) {
    parse_trace_steps(config.trace_steps);
    if (config.profiles_memory()) {
      throw ConfigError(cat("--trace-steps needs a timeline, but --trace ", config.trace,
                            " records memory in the first 3 steps; leave out --trace-steps"));
    }
  }
  parse_sample_range(config.skip_samples);
  if (config.device.starts_with("emu")) {
    check_fp8(config, emulated_device(config.device == "emu" ? "emu:80" : config.device));
  }
  if (config.loss_scale < 0) config.loss_scale = config.dtype == Precision::kF16 ? 65536 : 0;
  resolve_optimizer(config);
  if (config.epochs > 0) return;
  resolve_schedule(config);
  resolve_slow_links(config, sizes);
}

void resolve_steps(RunConfig& config, const ConfigSpec& spec, int64_t samples_per_epoch,
                   int ranks) {
  if (config.epochs == 0) return;
  if (samples_per_epoch <= 0) {
    throw ConfigError("--epochs: this data has no length; use --steps");
  }
  const double samples = std::ceil(config.epochs * static_cast<double>(samples_per_epoch));
  const BatchLayout layout = batch_layout(config, /*ranks=*/1);
  const int64_t ramp_steps = layout.ramp.empty() ? 0 : layout.ramp.back().end;
  int64_t steps = 0;
  while (steps < ramp_steps && static_cast<double>(layout.samples_before(steps)) < samples) ++steps;
  const double rest = samples - static_cast<double>(layout.samples_before(steps));
  const double more = std::ceil(rest / static_cast<double>(layout.global_batch));
  if (!(more < 0x1p53)) {
    throw ConfigError(cat("--epochs is ", config.epochs, ", too many for ", samples_per_epoch,
                          " samples an epoch; use fewer, or --steps"));
  }
  steps += std::max<int64_t>(static_cast<int64_t>(more), 0);
  config.steps = spec.was_set("steps") ? std::min(config.steps, steps) : steps;
  resolve_schedule(config);
  resolve_slow_links(config, parallel_sizes(config, ranks));
}

}  // namespace shale::models
