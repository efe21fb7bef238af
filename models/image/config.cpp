#include "shale/models/image/config.h"

#include "shale/models/training/data_parallel_only.h"

namespace shale::models {
namespace {

constexpr int64_t kMadePixels = 64;

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ImagePreset& preset : image_presets()) names.push_back(preset.name);
  return names;
}

void describe_data_and_model(ConfigSpec& spec, ImageConfig& c) {
  describe(spec, c.data,
           {.path = "folder with a folder of PNG and JPEG files for each class, perhaps in train/ "
                    "and val/; or with CIFAR's binary files, or with IDX files; shapes: made, not "
                    "read",
            .pixels = "64 for shapes, 32 for CIFAR and IDX, else 224"});
  spec.add("crop-area", c.crop_area,
           "least share of an image's area that a random crop for training has; 1: the whole image",
           {.min = 0.01, .max = 1, .help = {.default_text = "0.08 of a folder, else 0.6"}});

  spec.section("Model");
  spec.add_choice("model", c.model, preset_names(), "preset");
  spec.add("sync-batch-norm", c.sync_batch_norm,
           "normalise with the statistics of all ranks' samples, and not of each rank's own");
}

}  // namespace

void describe(ConfigSpec& spec, ImageTrainConfig& config) {
  describe_data_and_model(spec, config.image);
  describe(spec, config.run, {.sample = "image", .default_lr = "by preset"});
  spec.section("Evaluation");
  spec.add("eval-samples", config.image.eval_samples, "images of a validation; 0: all", {.min = 0})
      .may_change();

  spec.example("train_image --data shapes --eval-every 100");
  spec.example("mpirun -np 4 --bind-to none train_image --data imagenet/ --model resnet50");
}

void resolve(ImageTrainConfig& config, int ranks) {
  if (config.run.lr < 0) config.run.lr = find_image_preset(config.image.model).lr;
  check_data_parallel_only(config.run, "models of images");
  resolve(config.run, ranks);
}

ImageDataOptions data_options(const ImageTrainConfig& config) {
  return data_options(config.image.data, static_cast<uint64_t>(config.run.seed), kMadePixels);
}

Augmentation augmentation(const ImageConfig& config, ImageFormat format) {
  const bool is_folder = format == ImageFormat::kFolder;
  Augmentation result{.crop_area = is_folder ? 0.08 : 0.6,
                      .mirror = config.data.mirror,
                      .center_share = is_folder ? 0.875 : 1};
  switch (format) {
    case ImageFormat::kShapes: result.pixels = kMadePixels; break;
    case ImageFormat::kCifar:
    case ImageFormat::kIdx: result.pixels = 32; break;
    default: break;
  }
  if (config.data.pixels > 0) result.pixels = config.data.pixels;
  if (config.crop_area > 0) result.crop_area = config.crop_area;
  return result;
}

}  // namespace shale::models
