#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/models/image/data_config.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// What the training of a diffusion transformer asks for besides RunConfig.
struct DiffusionConfig {
  ImageDataConfig data;

  // model
  std::string model = "dit-nano";
  int64_t patch = 0;  // pixels; 0: the preset's
  DitVariant variant = DitVariant::kPaper;
  std::string init;  // stored weights; empty: initial values

  // process
  DiffusionKind process = DiffusionKind::kFlow;
  bool learned_variance = false;
  TimeDraws times = TimeDraws::kUniform;
  double time_shift = 1;       // of a flow's times, see shifted_time()
  double label_dropout = 0.1;  // probability

  // samples
  int64_t samples = 24;  // of a validation; 0: none
  int64_t sample_steps = 50;
  double guidance = 2;

  // evaluation
  int64_t eval_samples = 0;  // images; 0: all

  // output
  std::string export_dir;  // empty: no export
};

// The options of train_diffusion.
struct DiffusionTrainConfig {
  DiffusionConfig diffusion;
  RunConfig run;
};

// Declares the flags of train_diffusion.
void describe(ConfigSpec& spec, DiffusionTrainConfig& config);

// As resolve(TrainConfig&, int).
void resolve(DiffusionTrainConfig& config, int ranks);

// The model for data of these sizes.
DitConfig model_config(const DiffusionConfig& config, int64_t pixels, int64_t channels,
                       int64_t classes);

}  // namespace shale::models
