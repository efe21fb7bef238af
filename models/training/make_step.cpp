#include "shale/models/training/make_step.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/log.h"
#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/kernels/fp8.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/runtime/nn/fp8.h"
#include "shale/runtime/ops/linear_fp8.h"

namespace shale::models {
namespace {

// Returns a text such as "pipeline of 2 stages on 2 ranks: embedding to h.1, h.2 to head; ranks are
// idle for ...".
std::string describe(const StepPipeline& pipeline) {
  const comm::StagePlacement& place = pipeline.plan.placement();
  std::vector<comm::StageTimes> times;
  std::string text = cat("pipeline of ", place.stages(), " stages on ", place.ranks, " ranks:");
  for (const auto& [first, end] : pipeline.plan.stages) {
    comm::StageTimes time{0, 0, 0};
    for (int i = first; i < end; ++i) {
      const double cost = pipeline.pieces[static_cast<size_t>(i)].cost;
      time = {time.forward + cost, time.backward_input + cost, time.backward_weights + cost};
    }
    times.push_back(time);
    const auto name = [&](int i) { return pipeline.pieces[static_cast<size_t>(i)].name; };
    text += cat(first == 0 ? " " : ", ", name(first));
    if (end - first > 1) text += cat(" to ", name(end - 1));
  }
  const comm::Simulation run = comm::simulate(pipeline.plan.schedule, {.times = times});
  const double idle = *std::min_element(run.idle.begin(), run.idle.end());
  return cat(text, "; ranks are idle for at least ",
             static_cast<int>(std::lround(100 * idle / run.makespan)), "% of a step");
}

// Returns, for each mesh rank in this process, the units of its model.
std::vector<std::vector<Module*>> units_of_models(const std::vector<Module*>& units,
                                                  const comm::Parallel& parallel) {
  const comm::HostedModels* const hosted = parallel.groups().hosted;
  if (hosted == nullptr) return {units};
  std::vector<std::vector<Module*>> all(hosted->models().size());
  for (const Module* unit : units) {
    const std::vector<Module*> copies = hosted->copies_of(*unit);
    for (size_t rank = 0; rank < all.size(); ++rank) all[rank].push_back(copies[rank]);
  }
  return all;
}

Operands fp8_operands(const RunConfig& config) {
  return config.fp8_scaling == Fp8Scaling::kTensor ? Operands::kFp8Tensor : Operands::kFp8;
}

}  // namespace

void check_fp8(const RunConfig& config, const Device& device) {
  if (config.dtype != Precision::kFp8) return;
  const std::string why = kernels::why_no_fp8(device, fp8_weight_blocks(fp8_operands(config)));
  if (why.empty()) return;
  std::string use = "--dtype bf16, or --device cpu or emu:90";
  Device gpu = device;
  gpu.type = DeviceType::kCuda;
  if (config.fp8_scaling == Fp8Scaling::kBlock &&
      kernels::why_no_fp8(gpu, kernels::Fp8Blocks::kTensor).empty()) {
    use = device == gpu ? "--fp8-scaling tensor, " + use
                        : "--fp8-scaling tensor on a real GPU of this kind, or here " + use;
  }
  throw ConfigError(cat("--dtype fp8 on ", device, ": ", why, "; use ", use));
}

std::unique_ptr<TrainStep> make_step(const StepParts& parts, StepObserver* observer) {
  const RunConfig& config = parts.config;
  Task& task = parts.task;
  const BatchLayout& layout = parts.layout;
  const int64_t micro_batches = layout.largest_batch() / (layout.micro_batch * layout.ranks);
  cut_model(config, task, parts.parallel);
  const std::vector<Module*> units = task.units();
  for (const std::vector<Module*>& of_model : units_of_models(units, parts.parallel)) {
    for (Module* unit : of_model) unit->set_recompute(config.recompute);
    if (config.dtype != Precision::kFp8) continue;
    nn::compute_in_fp8(of_model, config.fp8_kept_blocks, fp8_operands(config),
                       parts.context.exec());
  }
  StepModel model{task.model(), units,
                  [&task](const DeviceBatch& batch) { return task.loss(batch); }};
  model.tally = task.tally(parts.context);
  if (config.pipeline > 1) {
    model.pipeline = parallel_pipeline(config, task, micro_batches, parts.parallel);
    log_info(describe(*model.pipeline));
  }
  StepOptions options =
      step_options(config, dtype_of_flag(config.dtype, parts.context.device()), micro_batches);
  options.offload.stepper = parts.stepper;
  return std::make_unique<TrainStep>(
      parts.context, parts.parallel.groups(), std::move(model), options,
      [&](std::vector<OptimShard> shards) {
        return make_optimizer(config, units, std::move(shards));
      },
      observer);
}

}  // namespace shale::models
