#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/image/data_config.h"
#include "shale/models/image/model.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/data/images/augment.h"

namespace shale::models {

// What the training of a classifier of images asks for besides RunConfig.
struct ImageConfig {
  // data
  ImageDataConfig data;
  double crop_area = -1;  // share; negative: by the data

  // model
  std::string model = "resnet18";
  bool sync_batch_norm = false;

  // evaluation
  int64_t eval_samples = 0;  // images; 0: all
};

// The options of train_image.
struct ImageTrainConfig {
  ImageConfig image;
  RunConfig run;
};

// Declares the flags of train_image.
void describe(ConfigSpec& spec, ImageTrainConfig& config);

// As resolve(TrainConfig&, int).
void resolve(ImageTrainConfig& config, int ranks);

// The data that the options ask for.
ImageDataOptions data_options(const ImageTrainConfig& config);
// How images of this format become what the model is given.
Augmentation augmentation(const ImageConfig& config, ImageFormat format);

}  // namespace shale::models
