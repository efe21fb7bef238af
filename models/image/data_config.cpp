#include "shale/models/image/data_config.h"

#include "shale/models/training/watch_reading.h"

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
      .basic("images, or shapes, which are made");
  spec.add_choice("data-format", c.format,
                  {{"auto", ImageFormat::kAuto},
                   {"shapes", ImageFormat::kShapes},
                   {"folder", ImageFormat::kFolder},
                   {"cifar", ImageFormat::kCifar},
                   {"idx", ImageFormat::kIdx},
                   {"webdataset", ImageFormat::kWebdataset}},
                  "how to read it")
      .may_change();
  spec.add("val-fraction", c.val_fraction,
           "part held out for validation, unless the data says by its names what is",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("made-images", c.made_images, "images of --data shapes, for training",
           {.min = 1, .max = kMaxImages});
  spec.add("pixels", c.pixels, "edge of what the model is given",
           {.min = 1, .max = kMaxPixels, .help = {.default_text = words.pixels}});
  spec.add("mirror", c.mirror, "probability that an image is mirrored in training",
           {.min = 0, .max = 1});
  spec.add("max-damaged", c.max_damaged,
           "images of a rank that cannot be read, and are left out, before the run is ended",
           {.min = 0})
      .may_change();
}

ImageDataOptions data_options(const ImageDataConfig& config, uint64_t seed, int64_t made_pixels) {
  return {.path = config.path,
          .format = config.format,
          .val_fraction = config.val_fraction,
          .made_images = config.made_images,
          .made_pixels = config.pixels > 0 ? config.pixels : made_pixels,
          .seed = seed,
          .max_damaged = config.max_damaged,
          .on_reading = watch_reading()};
}

}  // namespace shale::models
