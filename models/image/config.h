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
  // Minimum fraction of the image's area in a random crop. Negative: depends on the data.
  double crop_area = -1;
  std::string randaugment;  // RandAugment's "CHANGES,STRENGTH"; empty: none
  double erase = 0;         // probability of erasing a rectangle of an image
  double mixup = 0;         // mixup, cutmix, label_smoothing: see MixOptions
  double cutmix = 0;
  double label_smoothing = 0;
  std::string mean, deviation;  // of each channel, as "R,G,B"; empty: ImageNet's

  // Model.
  std::string model = "resnet18";
  std::string init;       // file or folder of stored weights; empty: random weights
  bool new_head = false;  // do not load the classifier layer from `init`
  bool sync_batch_norm = false;

  // Evaluation and export.
  int64_t eval_samples = 0;        // number of images per validation; 0: all
  int64_t tensorboard_images = 0;  // number of images shown per validation
  std::string export_dir;          // folder for the exported model; empty: no export
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

// Returns the data options that follow from the program's options.
ImageDataOptions data_options(const ImageTrainConfig& config, const DataReading& reading = {});
// Returns the preprocessing for images of this format. Throws ConfigError if an option should be a
// number and is not.
Augmentation augmentation(const ImageConfig& config, ImageFormat format);
MixOptions mix_options(const ImageConfig& config);

}  // namespace shale::models
