#include "shale/models/image/config.h"

#include "shale/base/error.h"

namespace shale::models {
namespace {

constexpr int64_t kMaxPixels = 1 << 12;
constexpr int64_t kMaxImages = int64_t{1} << 40;
constexpr int64_t kMadePixels = 64;
constexpr int64_t kMostShown = 64;

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ImagePreset& preset : image_presets()) names.push_back(preset.name);
  return names;
}

void describe_data_and_model(ConfigSpec& spec, ImageConfig& c) {
  spec.section("Data");
  spec.add("data", c.data,
           "folder with a folder of PNG and JPEG files for each class, perhaps in train/ and val/; "
           "or with CIFAR's binary files, or with IDX files; shapes: made, not read",
           {.required = true, .is_path = true, .help = {.metavar = "PATH"}})
      .may_change();
  spec.add_choice("data-format", c.data_format,
                  {{"auto", ImageFormat::kAuto},
                   {"shapes", ImageFormat::kShapes},
                   {"folder", ImageFormat::kFolder},
                   {"cifar", ImageFormat::kCifar},
                   {"idx", ImageFormat::kIdx}},
                  "how to read it")
      .may_change();
  spec.add("val-fraction", c.val_fraction,
           "part held out for validation, unless the data says by its names what is",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("made-images", c.made_images, "images of --data shapes, for training",
           {.min = 1, .max = kMaxImages});
  spec.add("pixels", c.pixels, "edge of what the model is given",
           {.min = 1,
            .max = kMaxPixels,
            .help = {.default_text = "64 for shapes, 32 for CIFAR and "
                                     "IDX, else 224"}});
  spec.add("crop-area", c.crop_area,
           "least share of an image's area that a random crop for training has; 1: the whole image",
           {.min = 0.01, .max = 1, .help = {.default_text = "0.08 of a folder, else 0.6"}});
  spec.add("mirror", c.mirror, "probability that an image is mirrored in training",
           {.min = 0, .max = 1});
  spec.add("max-damaged", c.max_damaged,
           "images of a rank that cannot be read, and are left out, before the run is ended",
           {.min = 0})
      .may_change();

  spec.section("Model");
  spec.add_choice("model", c.model, preset_names(), "preset");
  spec.add("sync-batch-norm", c.sync_batch_norm,
           "normalise with the statistics of all ranks' samples, and not of each rank's own");
}

struct RefusedFlag {
  const char* flag;
  int value;
  const char* why;
};

// Ranks of data parallelism alone share these models.
void check_layout(const RunConfig& run) {
  for (const auto& [flag, value, why] :
       {RefusedFlag{"pipeline", run.pipeline, "are not cut into stages"},
        RefusedFlag{"tensor", run.tensor, "have no plan of how to cut their layers"},
        RefusedFlag{"tensor-leaves", run.tensor_leaves, "have no plan of how to cut their layers"},
        RefusedFlag{"context", run.context, "have no sequences to cut"},
        RefusedFlag{"context-leaves", run.context_leaves, "have no sequences to cut"}}) {
    if (value <= 1) continue;
    throw ConfigError(cat("--", flag, " ", value, ": models of images ", why,
                          "; want 1, and ranks of data parallelism (--zero) instead"));
  }
}

}  // namespace

void describe(ConfigSpec& spec, ImageTrainConfig& config) {
  describe_data_and_model(spec, config.image);
  describe(spec, config.run, {.sample = "image", .default_lr = "by preset"});
  spec.section("Evaluation");
  spec.add("eval-samples", config.image.eval_samples, "images of a validation; 0: all", {.min = 0})
      .may_change();
  spec.add("tensorboard-images", config.image.tensorboard_images,
           "with --tensorboard, show so many images of each validation, framed in green where the "
           "model is right, else in red; 0: none",
           {.min = 0, .max = kMostShown})
      .may_change();

  spec.example("train_image --data shapes --eval-every 100");
  spec.example("mpirun -np 4 --bind-to none train_image --data imagenet/ --model resnet50");
}

void resolve(ImageTrainConfig& config, int ranks) {
  if (config.run.lr < 0) config.run.lr = find_image_preset(config.image.model).lr;
  check_layout(config.run);
  if (config.image.tensorboard_images > 0 &&
      (!config.run.tensorboard || config.run.eval_every == 0)) {
    throw ConfigError(cat("--tensorboard-images is ", config.image.tensorboard_images,
                          ": want --tensorboard and --eval-every, or 0"));
  }
  if (config.image.tensorboard_images > 0) {  // now, and not at the first validation
    encode_png({.rows = 1, .cols = 1, .channels = 1, .pixels = {0}}, "--tensorboard-images");
  }
  resolve(config.run, ranks);
}

ImageDataOptions data_options(const ImageTrainConfig& config) {
  const ImageConfig& image = config.image;
  return {.path = image.data,
          .format = image.data_format,
          .val_fraction = image.val_fraction,
          .made_images = image.made_images,
          .made_pixels = image.pixels > 0 ? image.pixels : kMadePixels,
          .seed = static_cast<uint64_t>(config.run.seed)};
}

Augmentation augmentation(const ImageConfig& config, ImageFormat format) {
  const bool is_folder = format == ImageFormat::kFolder;
  Augmentation result{.crop_area = is_folder ? 0.08 : 0.6,
                      .mirror = config.mirror,
                      .center_share = is_folder ? 0.875 : 1};
  switch (format) {
    case ImageFormat::kShapes: result.pixels = kMadePixels; break;
    case ImageFormat::kCifar:
    case ImageFormat::kIdx: result.pixels = 32; break;
    default: break;
  }
  if (config.pixels > 0) result.pixels = config.pixels;
  if (config.crop_area > 0) result.crop_area = config.crop_area;
  return result;
}

}  // namespace shale::models
