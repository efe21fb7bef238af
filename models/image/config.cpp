#include "shale/models/image/config.h"

#include <algorithm>
#include <array>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/training/sample_axes.h"
#include "shale/runtime/data/images/rand_augment.h"

namespace shale::models {
namespace {

constexpr int64_t kMadePixels = 64;
constexpr int kMostChanges = 16;  // maximum number of random changes per image
constexpr int64_t kMostShown = 64;

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ImagePreset& preset : image_presets()) names.push_back(preset.name);
  return names;
}

void describe_data_and_model(ConfigSpec& spec, ImageConfig& c) {
  describe(spec, c.data,
           {.path = "folder with a subfolder of PNG or JPEG files per class (train/ and val/ "
                    "optional), CIFAR or IDX files, webdataset tars (a folder or "
                    "x-{000..012}.tar), or the word shapes for synthetic images",
            .pixels = "64 for shapes, 32 for CIFAR and IDX, else 224"});
  spec.add("crop-area", c.crop_area,
           "minimum share of the image area in a random training crop; 1: the whole image",
           {.min = 0.01, .max = 1, .help = {.default_text = "0.08 for a folder, else 0.6"}});
  spec.add("randaugment", c.randaugment,
           "RandAugment: operations per training image and their strength, 0 to 30; 2,9 is usual",
           {.help = {.metavar = "N,STRENGTH", .default_text = "none"}});
  spec.add("random-erase", c.erase, "probability of erasing a random rectangle of a training image",
           {.min = 0, .max = 1});
  spec.add("mixup", c.mixup,
           "mixup: alpha of the Beta distribution of mixing shares; 0.2 is usual, 0: off",
           {.min = 0, .max = kMostMixing});
  spec.add("cutmix", c.cutmix,
           "CutMix: alpha of the Beta distribution; 1 is usual, 0: off; with --mixup, each is used "
           "half the time",
           {.min = 0, .max = kMostMixing});
  spec.add("label-smoothing", c.label_smoothing,
           "label smoothing: share of the target that is spread over all classes",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("mean", c.mean, "mean to subtract from pixel values of 0 to 1, per channel",
           {.help = {.metavar = "R,G,B", .default_text = "ImageNet's, 0.485,0.456,0.406"}});
  spec.add("std", c.deviation, "standard deviation to divide pixel values by, per channel",
           {.help = {.metavar = "R,G,B", .default_text = "ImageNet's, 0.229,0.224,0.225"}});

  spec.section("Model");
  spec.add_choice("model", c.model, preset_names(), "model preset")
      .basic("model preset, such as resnet50 or vit-s16");
  spec.add("init", c.init,
           "start from local timm or torchvision weights: a safetensors or torch.save file, or a "
           "folder with one",
           {.is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("start from timm or torchvision weights");
  spec.add("new-head", c.new_head,
           "replace the classifier of --init by a new one, for other classes")
      .may_change();
  spec.add("sync-batch-norm", c.sync_batch_norm,
           "compute batch-norm statistics over all ranks, not per rank");
}

// Parses `count` comma-separated numbers within `range`. Throws ConfigError with the expected
// format.
std::vector<double> numbers_of(const char* flag, const std::string& text, size_t count,
                               std::pair<double, double> range, const char* want) {
  std::vector<double> numbers;
  bool fits = true;
  for (size_t begin = 0; fits && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto value = parse_real(std::string_view(text).substr(begin, end - begin));
    fits = value && *value >= range.first && *value <= range.second;
    if (fits) numbers.push_back(*value);
    begin = end + 1;
  }
  if (fits && numbers.size() == count) return numbers;
  throw ConfigError(cat("--", flag, " is ", excerpt(text), ", expected ", want));
}

// Parses one number per channel; an empty text leaves the numbers unchanged.
void take_channels(const char* flag, const std::string& text, double least,
                   std::array<float, 3>& to) {
  if (text.empty()) return;
  const std::string want = cat("three numbers from ", format_real(least), " to 1, as 0.5,0.5,0.5");
  const std::vector<double> numbers = numbers_of(flag, text, to.size(), {least, 1}, want.c_str());
  for (size_t c = 0; c < to.size(); ++c) to[c] = static_cast<float>(numbers[c]);
}

void take_randaugment(const std::string& text, Augmentation& to) {
  if (text.empty()) return;
  const std::string want = cat("N,STRENGTH with N from 0 to ", kMostChanges,
                               " and STRENGTH from 0 to ", kStrongestChange, ", such as 2,9");
  const std::vector<double> numbers =
      numbers_of("randaugment", text, 2, {0, kStrongestChange}, want.c_str());
  to.changes = static_cast<int64_t>(numbers[0]), to.strength = static_cast<int64_t>(numbers[1]);
  if (numbers[0] > kMostChanges || static_cast<double>(to.changes) != numbers[0] ||
      static_cast<double>(to.strength) != numbers[1]) {
    throw ConfigError(cat("--randaugment is ", excerpt(text), ", expected ", want));
  }
}

}  // namespace

void describe(ConfigSpec& spec, ImageTrainConfig& config) {
  describe_data_and_model(spec, config.image);
  describe(spec, config.run, {.sample = "image", .default_lr = "by preset"});
  spec.section("Evaluation and export");
  spec.add("eval-samples", config.image.eval_samples, "images per validation; 0: all", {.min = 0})
      .may_change();
  spec.add("tensorboard-images", config.image.tensorboard_images,
           "images of each validation to show in TensorBoard, framed green if classified right, "
           "else red; 0: none",
           {.min = 0, .max = kMostShown})
      .may_change();
  spec.add("export", config.image.export_dir,
           "write model.safetensors at the end, with the config.json of timm",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change()
      .basic("write model.safetensors at the end");
  spec.add_choice("export-names", config.image.export_names,
                  {{"timm", WeightNames::kTimm}, {"torchvision", WeightNames::kTorchvision}},
                  "parameter names in --export; torchvision: without a config.json")
      .may_change();
  spec.needs("new-head", "--init");
  spec.needs("eval-samples tensorboard-images", "--eval-every");
  spec.needs("tensorboard-images", "--tensorboard");
  spec.needs("export-names", "--export");

  spec.example("train_image --data shapes --eval-every 100");
  spec.example("mpirun -np 4 --bind-to none train_image --data imagenet/ --model resnet50");
  spec.example(
      "train_image --data flowers/ --model vit-s16 --init vit.safetensors --new-head --export "
      "tuned");
}

void resolve(ImageTrainConfig& config, int ranks) {
  const ImageConfig& image = config.image;
  // A learning rate for training from scratch would destroy stored weights, so it is reduced.
  constexpr double kFineTuningFactor = 0.1;
  const double usual_lr = find_image_preset(image.model).lr;
  if (image.init.empty()) config.run.usual_lr = usual_lr;
  if (config.run.lr < 0) config.run.lr = usual_lr * (image.init.empty() ? 1 : kFineTuningFactor);
  const bool is_vit = find_image_preset(image.model).model.family == "vit";
  if (!is_vit) {
    check_data_parallel_only(
        config.run, "residual networks",
        "do not support it, as batch norms need the statistics of all samples");
  }
  if (config.image.tensorboard_images > 0 && config.run.pipeline > 1) {
    throw ConfigError(cat(
        "--tensorboard-images with --pipeline ", config.run.pipeline,
        ": images cannot be shown with a pipeline; use --tensorboard-images 0 or --pipeline 1"));
  }
  if (config.image.tensorboard_images > 0) {  // report missing libpng now
    encode_png({.rows = 1, .cols = 1, .channels = 1, .pixels = {0}}, "--tensorboard-images");
  }
  resolve(config.run, ranks);
  if (is_vit) check_whole_samples(config.run, "vision transformers");
}

ImageDataOptions data_options(const ImageTrainConfig& config, const DataReading& reading) {
  return data_options(config.image.data, static_cast<uint64_t>(config.run.seed), kMadePixels,
                      reading);
}

Augmentation augmentation(const ImageConfig& config, ImageFormat format) {
  const bool is_folder = format == ImageFormat::kFolder || format == ImageFormat::kWebdataset;
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
  result.erase = config.erase;
  take_randaugment(config.randaugment, result);
  take_channels("mean", config.mean, 0, result.mean);
  take_channels("std", config.deviation, 0.001, result.deviation);
  return result;
}

MixOptions mix_options(const ImageConfig& config) {
  return {
      .mixup = config.mixup, .cutmix = config.cutmix, .label_smoothing = config.label_smoothing};
}

}  // namespace shale::models
