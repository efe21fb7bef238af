#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/models/image/data_config.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Options of diffusion transformer training besides RunConfig.
struct DiffusionConfig {
  ImageDataConfig data;

  // Model.
  std::string model = "dit-nano";
  int64_t patch = 0;  // edge length of a patch in pixels; 0: that of the preset
  DitVariant variant = DitVariant::kPaper;
  std::string init;  // file or folder of stored weights; empty: random weights

  // Diffusion process, and how it is trained.
  DiffusionKind process = DiffusionKind::kFlow;
  bool learned_variance = false;
  TimeDraws times = TimeDraws::kUniform;
  double time_shift = 1;       // used with kFlow, see shifted_time()
  double label_dropout = 0.1;  // probability of dropping a sample's class

  // Samples.
  int64_t samples = 24;  // number of samples generated per validation; 0: none
  int64_t sample_steps = 50;
  double guidance = 2;

  // Evaluation.
  int64_t eval_samples = 0;  // number of images per validation; 0: all

  // Output.
  std::string export_dir;  // folder for the exported model; empty: no export
};

// Options of train_diffusion.
struct DiffusionTrainConfig {
  DiffusionConfig diffusion;
  RunConfig run;
};

// Declares the flags of train_diffusion.
void describe(ConfigSpec& spec, DiffusionTrainConfig& config);

// Fills in derived options, like resolve(TrainConfig&, int).
void resolve(DiffusionTrainConfig& config, int ranks);

// Returns the model for data of these sizes.
DitConfig model_config(const DiffusionConfig& config, int64_t pixels, int64_t channels,
                       int64_t classes);

}  // namespace shale::models
