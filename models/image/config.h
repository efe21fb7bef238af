#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/image/model.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/data/images/augment.h"
#include "shale/runtime/data/images/image_dataset.h"

namespace shale::models {

// What the training of a classifier of images asks for besides RunConfig.
struct ImageConfig {
  // data
  std::string data;
  ImageFormat data_format = ImageFormat::kAuto;
  double val_fraction = 0.1;
  int64_t made_images = 8192;  // of ImageFormat::kShapes
  int64_t pixels = 0;          // of an edge; 0: by the data
  double crop_area = -1;       // share; negative: by the data
  double mirror = 0.5;         // probability
  int64_t max_damaged = 0;     // images

  // model
  std::string model = "resnet18";
  bool sync_batch_norm = false;

  // evaluation
  int64_t eval_samples = 0;       // images; 0: all
  int64_t tensorboard_images = 0;  // of each validation
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
