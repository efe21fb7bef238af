#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/image/data_config.h"
#include "shale/models/image/image_weights.h"
#include "shale/models/image/model.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/data/images/augment.h"
#include "shale/runtime/data/images/mix.h"

namespace shale::models {

// What the training of a classifier of images asks for besides RunConfig.
struct ImageConfig {
  // data
  ImageDataConfig data;
  double crop_area = -1;  // share; negative: by the data
  std::string randaugment;     // "CHANGES,STRENGTH"; empty: none
  double erase = 0;            // probability
  double mixup = 0;            // of MixOptions, as the next two
  double cutmix = 0;
  double label_smoothing = 0;
  std::string mean, deviation;  // by channel, "R,G,B"; empty: those of ImageNet

  // model
  std::string model = "resnet18";
  std::string init;       // a file or folder; empty: random values
  bool new_head = false;  // the classifier is not from there
  bool sync_batch_norm = false;

  // evaluation and export
  int64_t eval_samples = 0;  // images; 0: all
  int64_t tensorboard_images = 0;  // of each validation
  std::string export_dir;    // empty: nothing
  WeightNames export_names = WeightNames::kTimm;
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
// How images of this format become what the model is given. Throws ConfigError for numbers that
// are none.
Augmentation augmentation(const ImageConfig& config, ImageFormat format);
MixOptions mix_options(const ImageConfig& config);

}  // namespace shale::models
