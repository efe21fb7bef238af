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

// Options of image classifier training besides RunConfig.
struct ImageConfig {
  // Data.
  ImageDataConfig data;
  double crop_area = -1;       // minimum share of the area; negative: depends on the data
  std::string randaugment;     // "CHANGES,STRENGTH"; empty: none
  double erase = 0;            // probability per image
  double mixup = 0;            // this and the next two: see MixOptions
  double cutmix = 0;
  double label_smoothing = 0;
  std::string mean, deviation;  // by channel, "R,G,B"; empty: ImageNet's

  // Model.
  std::string model = "resnet18";
  std::string init;       // file or folder; empty: random values
  bool new_head = false;  // initialize the classifier instead of loading it
  bool sync_batch_norm = false;

  // Evaluation and export.
  int64_t eval_samples = 0;        // number of images per validation; 0: all
  int64_t tensorboard_images = 0;  // number of images shown per validation
  std::string export_dir;          // folder; empty: no export
  WeightNames export_names = WeightNames::kTimm;
};

// Options of train_image.
struct ImageTrainConfig {
  ImageConfig image;
  RunConfig run;
};

// Declares the flags of train_image.
void describe(ConfigSpec& spec, ImageTrainConfig& config);

// Fills in derived options, like resolve(TrainConfig&, int).
void resolve(ImageTrainConfig& config, int ranks);

// Returns the options of the configured data.
ImageDataOptions data_options(const ImageTrainConfig& config, const DataReading& reading = {});
// Returns the preprocessing for images of this format. Throws ConfigError for text that is not a
// number.
Augmentation augmentation(const ImageConfig& config, ImageFormat format);
MixOptions mix_options(const ImageConfig& config);

}  // namespace shale::models
