#include "shale/models/image/data_config.h"

namespace shale::models {
namespace {

constexpr int64_t kMaxPixels = 1 << 12;
constexpr int64_t kMaxImages = int64_t{1} << 40;

}  // namespace

void describe(ConfigSpec& spec, ImageDataConfig& c, const ImageDataWords& words) {
  spec.section("Data");
  spec.add("data", c.path, words.path,
           {.required = true, .is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("folder of images, or the word shapes for synthetic images");
  spec.add_choice("data-format", c.format,
                  {{"auto", ImageFormat::kAuto},
                   {"shapes", ImageFormat::kShapes},
                   {"folder", ImageFormat::kFolder},
                   {"cifar", ImageFormat::kCifar},
                   {"idx", ImageFormat::kIdx},
                   {"webdataset", ImageFormat::kWebdataset}},
                  "format of --data")
      .may_change();
  spec.add(
      "val-fraction", c.val_fraction,
      "share of the data for validation, if no file name contains val, valid, validation or dev",
      {.min = 0, .max = 1, .exclude_max = true});
  spec.add("made-images", c.made_images, "number of training images of --data shapes",
           {.min = 1, .max = kMaxImages});
  spec.add("pixels", c.pixels, "width and height of the model's input images",
           {.min = 1, .max = kMaxPixels, .help = {.default_text = words.pixels}});
  spec.add("mirror", c.mirror, "probability of mirroring a training image", {.min = 0, .max = 1});
  spec.add("max-damaged", c.max_damaged,
           "maximum number of unreadable images that a rank skips; one more ends the run",
           {.min = 0})
      .may_change();
}

ImageDataOptions data_options(const ImageDataConfig& config, uint64_t seed, int64_t made_pixels,
                              const DataReading& reading) {
  return {.path = config.path,
          .format = config.format,
          .val_fraction = config.val_fraction,
          .made_images = config.made_images,
          .made_pixels = config.pixels > 0 ? config.pixels : made_pixels,
          .seed = seed,
          .max_damaged = config.max_damaged,
          .on_reading = reading.on_reading,
          .once = reading.once};
}

}  // namespace shale::models
